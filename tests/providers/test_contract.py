"""Each adapter keeps the contract of a model, by the public kit, on a server of our own."""

import asyncio

import pytest

from kernel.testing import check_model
from tests.providers.server import Server, nothing_leaks, split
from tests.providers.wires import WIRES, Answer, Wire

CALLS = (
    ("reasoning", "Two."), ("text", "I look."), ("call", "c1", "look_up", '{"word":', '"a"}'),
    ("call", "c2", "look_up", "{}"),
)  # fmt: skip


@pytest.mark.parametrize("wire", WIRES, ids=lambda wire: wire.name)
@pytest.mark.parametrize("size", [None, 5])
def test_an_adapter_keeps_the_contract(wire: Wire, size: int | None):
    """With answers of every kind, whole or in small pieces."""
    answers = [wire.says(*CALLS), wire.says(("text", "Hello."))] * 10
    if size is not None:
        answers = [Answer(split(answer.steps, size)) for answer in answers]  # type: ignore[arg-type]
    with nothing_leaks(), Server(*answers) as server:
        report = asyncio.run(check_model(wire.make(server.url), images=True))
    report.unwrap()
