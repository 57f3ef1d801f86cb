"""What holds for every test of a load."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.served.scripted import Reply, Scripted, as_stream, scripted, text_piece

SHORT = 0.1
USAGE = {"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 2}}


def answers(body: dict[str, Any]) -> Reply:
    return as_stream(text_piece("a"), text_piece("b", "stop"), USAGE)


@pytest.fixture(autouse=True)
def no_look_for_garbage(monkeypatch):
    """Before each stage of a load; in a test process, which has imported much, each takes most of a second."""
    nothing = SimpleNamespace(collect=lambda: None, freeze=lambda: None, unfreeze=lambda: None)
    monkeypatch.setattr("qualgate.pipeline.load.run.gc", nothing)


@pytest.fixture
def servers(monkeypatch) -> Iterator[tuple[Scripted, Scripted]]:
    """Two that answer, each loaded for less time than a gate file may say."""
    monkeypatch.setattr("qualgate.pipeline.load.run._Turn.seconds", property(lambda turn: SHORT))
    with scripted(otherwise=answers) as one, scripted(otherwise=answers) as other:
        yield one, other
