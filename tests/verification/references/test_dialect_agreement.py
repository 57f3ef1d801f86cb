"""The rows `dialects` and `parsers`: the recorded strings; and readers with a fault, which they must find."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from qualgate.scoring.tools.dialects import Call
from qualgate.scoring.tools.dialects.registry import dialect
from tests.served_environments import stand_in
from tests.verification.references import served_parsers, sglang_strings
from tests.verification.references.agreement import NoReference
from tests.verification.references.dialect_agreement import KINDS, compared, table
from tests.verification.references.dialect_strings import PARSERS, TOOLS, kept, made

VERSION, ROWS = kept()
SLICE = ROWS[::8]
DOCS = (Path(__file__).parents[3] / "docs" / "dialects.md").read_text(encoding="utf-8")


def test_every_string_is_read_as_vllm_reads_it_or_differs_by_a_known_kind():
    found = compared(ROWS)
    assert found.unexplained == []
    assert found.holds
    assert {*found.strings} == {*PARSERS}
    assert {*found.kinds} == {*KINDS}
    assert all({*found.kinds[name]} == kind.dialects for name, kind in KINDS.items())
    assert all(f"| {cell} |" in DOCS for cell in table(found)), "python -m …dialect_agreement prints them"
    assert all(f"`{name}`" in DOCS for name in found.strings)


def _as_text(calls: Sequence[Call]) -> list[Call]:
    return [Call(call.name, {key: str(value) for key, value in call.arguments.items()}) for call in calls]


def _stripped(calls: Sequence[Call]) -> list[Call]:
    return [
        Call(
            one.name, {key: value.strip() if isinstance(value, str) else value for key, value in one.arguments.items()}
        )
        for one in calls
    ]


WRONG = {
    "drops the last call": lambda calls: calls[:-1],
    "leaves values as text": _as_text,
    "takes away what stands around a text": _stripped,
    "calls twice": lambda calls: [*calls, *calls],
}


@pytest.mark.parametrize("change", WRONG.values(), ids=[*WRONG])
def test_a_reader_with_a_fault_is_found(change):
    assert compared(SLICE, strictly=lambda name, text: change(dialect(name).parse(text, TOOLS))).unexplained


@pytest.mark.parametrize("engine", served_parsers.INTERPRETERS)
def test_a_servers_parser_that_reads_otherwise_than_it_was_recorded_is_found(engine):
    rows = served_parsers.recorded(engine)[1][::8]
    by_text = {(name, text): read for name, text, read in rows}
    assert served_parsers.compared(rows, lambda name, text: by_text[name, text]).holds
    for change in WRONG.values():

        def wrongly(name: str, text: str, change: Any = change) -> Any:
            read = by_text[name, text]
            if not isinstance(read, list):
                return read
            calls = change([Call(one["name"], one["arguments"]) for one in read])
            return [{"name": call.name, "arguments": call.arguments} for call in calls] or None

        assert served_parsers.compared(rows, wrongly).different
    assert not served_parsers.compared(rows, lambda name, text: {"raised": "no such parser"}).holds
    assert not served_parsers.compared([], lambda name, text: None).holds


def test_a_server_that_is_not_here_is_not_asked(monkeypatch):
    monkeypatch.delenv("QUALGATE_VLLM", raising=False)
    with pytest.raises(NoReference, match="QUALGATE_VLLM names no interpreter"):
        served_parsers.proof("vllm", 1)
    monkeypatch.setenv("QUALGATE_VLLM", stand_in())
    with pytest.raises(NoReference, match=f"vllm 9.8.7 is there, and {VERSION} was asked"):
        served_parsers.proof("vllm", 1)


def test_a_servers_parser_is_asked_of_every_recorded_string(monkeypatch):
    monkeypatch.setenv("QUALGATE_VLLM", stand_in(VERSION))
    found = served_parsers.proof("vllm", 40)
    assert found.strings.total() == len(ROWS[::40])
    assert found.different
    assert found.same["hermes"] >= 1


def test_the_strings_are_of_every_make_and_are_not_made_by_chance():
    assert {one.how for one in ROWS} >= {"clean", "around", "in a thought", "fenced", "unclosed", "cut", "left out"}
    assert list(made(random.Random(3), "hermes", 8)) == list(made(random.Random(3), "hermes", 8))
    assert VERSION == "0.33.0"
    assert any(row.one.how == sglang_strings.ONE_LINE for row in sglang_strings.asked()[1])
