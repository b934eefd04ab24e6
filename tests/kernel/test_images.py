"""Images in what a user says: they are valid from birth, reach the model, and count."""

import pytest

from kernel import Agent, Image, Text, UserMessage
from kernel.compactors import ModelCompactor
from kernel.estimators import IMAGE_BYTES, LengthEstimator, size
from kernel.testing import ScriptedModel, say, simulate

PICTURE = Image.of(b"\x89PNG\r\n", "image/png")


class TestAnImage:
    def test_a_data_url_is_read_back(self) -> None:
        assert PICTURE.carried == ("image/png", "iVBORw0K")

    def test_an_address_carries_nothing(self) -> None:
        assert Image("https://example.org/cat.jpg").carried is None

    @pytest.mark.parametrize(
        "url", ["", "cat.png", "file:///etc/passwd", "data:text/html;base64,AAAA", "data:image/png;base64,", "https://"]
    )
    def test_what_is_no_image_is_refused(self, url: str) -> None:
        with pytest.raises(ValueError, match="url must be an http"):
            Image(url)

    def test_a_url_is_text(self) -> None:
        with pytest.raises(TypeError, match="url"):
            Image(b"https://example.org/cat.jpg")  # type: ignore[arg-type]

    def test_a_media_type_that_is_no_image_is_refused(self) -> None:
        with pytest.raises(ValueError, match="url must be"):
            Image.of(b"x", "text/plain")


def test_a_message_of_images_alone_is_a_prompt():
    """Beside text or without it: the model gets the image where it stood."""
    said = UserMessage((PICTURE,)), UserMessage((Text("And "), PICTURE, Text("this?")))
    model = ScriptedModel([say("A cat."), say("A dog.")])

    async def main() -> None:
        agent = Agent(model)
        for message in said:
            (await agent.prompt(message)).unwrap()

    simulate(main())
    assert tuple(request.messages[-1] for request in model.requests) == said
    assert [message.text for message in said] == ["", "And this?"]
    assert [message.images for message in said] == [(PICTURE,), (PICTURE,)]


def test_an_image_counts_as_a_provider_counts_it_and_not_by_its_file():
    large = UserMessage((Image.of(bytes(10**6), "image/png"),))
    assert size(large) == IMAGE_BYTES
    assert LengthEstimator().estimate([large, UserMessage((PICTURE, PICTURE))]) == 3 * 1500 + 2 * 4


def test_a_summary_is_told_of_the_image():
    """Its bytes would fill the context that is to become smaller."""
    model = ScriptedModel([say("short")])
    simulate(ModelCompactor(model).summarize([UserMessage((Text("Look:"), PICTURE))]))
    assert "User: Look: [an image]" in model.requests[0].messages[0].text
