"""The page in a real Chromium: what a person sees and does, what is left when it is closed, and recorded traces."""

import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.adapters.outside import ROOT, NotHere, chromium
from tests.pictures.stories import three_seconds

pytestmark = pytest.mark.views
FLAGS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
QUESTION = "Please look at the files here. What are they about?"
TRACE = three_seconds()
SHOTS = os.environ.get("PHASEKERNEL_SHOTS")
"""A folder: pictures of the page are left there, to be looked at."""


@contextmanager
def served(*arguments: str) -> Iterator[str]:
    """`python -m kernel serve`, and where it is."""
    process = subprocess.Popen(
        [sys.executable, "-m", "kernel", "serve", "--port", "0", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        found = re.fullmatch(r"open (http://\S+)\n", process.stdout.readline())
        assert found is not None
        yield found[1]
    finally:
        process.terminate()
        process.communicate(timeout=30)


@pytest.fixture(scope="module")
def browser(say: Callable[[str], None]) -> Iterator[Any]:
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise NotHere("install it: pip install 'phasekernel[proof]'") from None
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium(), args=FLAGS)
        say(f"page: Chromium {browser.version}")
        yield browser
        browser.close()


@pytest.fixture
def page_of(browser: Any) -> Iterator[Callable[[str], Any]]:
    """Opens pages; in none of them may anything have gone wrong, or anything been loaded from elsewhere."""
    faults: list[str] = []
    contexts = []

    def open_page(url: str) -> Any:
        context = browser.new_context(viewport={"width": 1100, "height": 640})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("request", lambda asked: faults.append(asked.url) if "127.0.0.1" not in asked.url else None)
        page.goto(url)
        page.wait_for_selector("#send:not([disabled])", state="attached")
        return page

    yield open_page
    for context in contexts:
        context.close()
    ends = "net::ERR_"  # of the stream, when the server is stopped
    assert [fault for fault in faults if not fault.startswith("data:") and ends not in fault] == []


def shot(page: Any, name: str) -> None:
    if SHOTS is not None:
        page.screenshot(path=Path(SHOTS) / name)


def send(page: Any, text: str, button: str = "#send") -> None:
    page.fill("#text", text)
    page.click(button)


def messages(page: Any) -> list[tuple[str, str]]:
    return [(each.get_attribute("data-role"), each.inner_text()) for each in page.query_selector_all(".message")]


def phase(page: Any) -> str:
    return str(page.get_attribute("#phases [aria-current]", "data-phase"))


def test_a_talk(page_of: Callable[[str], Any]):
    """Asked, seen as it goes, steered, and ended: phases, tools with their times, usage, what waits."""
    with served() as url:
        page = page_of(url)
        assert phase(page) == "idle"
        send(page, QUESTION)
        page.wait_for_selector("#phases [data-phase=turn][aria-current]")
        assert page.inner_text("#send") == "Steer"
        page.wait_for_selector("tr[data-state=done]")
        send(page, "Be brief.")
        page.wait_for_selector("#queue li:has-text('now: Be brief.')")
        send(page, "Thank you.", "#later")
        page.wait_for_selector("#queue li:has-text('later: Thank you.')")
        shot(page, "page.png")
        page.wait_for_selector(".end")
        said = messages(page)
        assert said[0] == ("user", QUESTION)
        assert ("user", "Be brief.") in said
        assert [row.inner_text().split()[0] for row in page.query_selector_all("#tools tr")] == ["read_file", "list_files"]
        assert all(row.inner_text().rstrip().endswith(("ms", "s")) for row in page.query_selector_all("#tools tr"))
        assert re.search(r"turn \d · [\d,]+ tokens in", page.inner_text("#facts"))
        assert (phase(page), page.inner_text("#send")) == ("idle", "Send")


def test_cancel(page_of: Callable[[str], Any]):
    with served() as url:
        page = page_of(url)
        send(page, QUESTION)
        page.wait_for_selector("#phases [data-phase=turn][aria-current]")
        page.click("#cancel")
        page.wait_for_selector(".end[data-status=cancelled]")
        assert page.inner_text(".end") == "cancelled (cancelled in the browser): 1 turn"
        assert page.is_disabled("#cancel")


def test_two_browsers_see_the_same(page_of: Callable[[str], Any]):
    """One asks, the other one sees it and asks next; a third, that comes later, and one that reloads, see the same."""
    with served("--fast") as url:
        one, other = page_of(url), page_of(url)
        send(one, QUESTION)
        other.wait_for_selector(".end")
        send(other, "Once more.")
        for page in (one, other):
            page.wait_for_selector(".end >> nth=1")
        third = page_of(url)
        third.wait_for_selector(".end")
        other.reload()
        other.wait_for_selector(".end")
        shown = [messages(page) for page in (one, other, third)]
        assert shown[0] == shown[1] == shown[2]
        assert [text for role, text in shown[0] if role == "user"] == [QUESTION, "Once more."]


def test_a_browser_that_is_closed_costs_the_run_nothing(page_of: Callable[[str], Any]):
    """The run goes on, and is whole when somebody looks again."""
    with served() as url:
        page = page_of(url)
        send(page, QUESTION)
        page.wait_for_selector("tr")
        page.close()
        again = page_of(url)
        again.wait_for_selector(".end")
        assert again.inner_text(".end").startswith("completed")
        assert messages(again)[0] == ("user", QUESTION)


def test_what_a_model_and_a_user_say_is_text(page_of: Callable[[str], Any]):
    """Markup is shown as it is, and no script is run."""
    evil = "<img src=x onerror=alert(1)><script>alert(2)</script>"
    with served("--fast") as url:
        page = page_of(url)
        page.on("dialog", lambda dialog: pytest.fail("a script was run"))
        send(page, evil)
        page.wait_for_selector(".end")
        assert messages(page)[0] == ("user", evil)
        assert page.query_selector("#conversation img, #conversation script") is None


def test_what_is_refused_is_said_and_nothing_that_was_typed_is_lost(page_of: Callable[[str], Any]):
    """Of a server that is gone, too."""
    from playwright.sync_api import expect

    with served() as url:
        page = page_of(url)
    page.fill("#text", "Hi")
    page.evaluate("command('prompt', {text: 'Hi'})")
    page.wait_for_selector("#error:not([hidden])")
    page.wait_for_selector("#connection:has-text('connection lost')")
    page.evaluate("document.getElementById('send').disabled = false")
    page.click("#send")
    expect(page.locator("#text")).to_have_value("Hi")
    page.close()


def test_a_recorded_trace(page_of: Callable[[str], Any], tmp_path: Path):
    """In the same page: it is played, can be played again, and has its pictures; there is nobody to talk to."""
    (tmp_path / "run.jsonl").write_text(TRACE)
    with served("--replay", str(tmp_path / "run.jsonl"), "--speed", "20") as url:
        assert url.endswith("?thread=recorded")
        page = page_of(url)
        page.wait_for_selector(".end[data-status=cancelled]")
        assert [text for role, text in messages(page) if role == "user"][1:] == [
            "Leave b.py alone.", "Then write documentation.",
        ]  # fmt: skip
        assert page.query_selector_all("tr[data-state=failed]")
        assert not page.is_visible("#text")
        page.click("#again")
        page.wait_for_selector("#phases [data-phase=turn][aria-current]")
        page.wait_for_selector(".end[data-status=cancelled]")
        shot(page, "recorded.png")
        with page.expect_popup() as opened:
            page.click("#timeline")
        opened.value.locator("text.end", has_text="run_tests").wait_for()
        opened.value.close()


def test_the_inspector(page_of: Callable[[str], Any], browser: Any):
    """A page that somebody else wrote talks to the agent by AG-UI."""
    with served("--fast") as url:
        context = browser.new_context(viewport={"width": 1100, "height": 640})
        page = context.new_page()
        page.goto(f"{url}inspect/")
        box = page.get_by_placeholder("Message the agent")
        box.fill(QUESTION)
        box.press("Enter")
        page.wait_for_selector("text=read_file")
        page.wait_for_selector("text=RUN_FINISHED")
        shot(page, "inspector.png")
        context.close()


def test_a_narrow_window(page_of: Callable[[str], Any]):
    """Nothing is wider than the window of a telephone."""
    with served() as url:
        page = page_of(url)
        page.set_viewport_size({"width": 390, "height": 760})
        send(page, "word " * 200)
        page.wait_for_selector(".message")
        assert page.evaluate("document.documentElement.scrollWidth") <= 390
        shot(page, "narrow.png")
