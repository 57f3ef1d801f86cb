"""The row `dialects`, and readers with a fault, which it must find."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from qualgate.scoring.tools.dialects import Call
from qualgate.scoring.tools.dialects.registry import dialect
from qualgate.scoring.tools.served import read_served
from tests.verification.references.dialect_agreement import KINDS, SERVED, compared, table
from tests.verification.references.dialect_strings import PARSERS, TOOLS, kept, made

VERSION, ROWS = kept()
DOCS = Path(__file__).parents[3] / "docs" / "dialects.md"


def test_every_string_is_read_as_vllm_reads_it_or_differs_by_a_known_kind():
    found = compared(ROWS)
    assert found.unexplained == []
    assert found.holds
    assert {*found.strings} == {*PARSERS}
    assert found.share_served == 1
    assert {*found.kinds} == {*KINDS}
    assert all({*found.kinds[name]} == kind.dialects for name, kind in KINDS.items())
    assert "\n".join(table(found)) in DOCS.read_text(encoding="utf-8"), "python -m …dialect_agreement prints it"


def _strictly(change):
    return lambda name, text: change(dialect(name).parse(text, TOOLS))


def _served(change):
    return lambda text, name: change(read_served(text, name, TOOLS))


def _as_text(calls: Sequence[Call]) -> list[Call]:
    return [Call(call.name, {key: str(value) for key, value in call.arguments.items()}) for call in calls]


WRONG = {
    "drops the last call": lambda calls: calls[:-1],
    "leaves values as text": _as_text,
    "takes away what stands around a text": lambda calls: [
        Call(
            one.name, {key: value.strip() if isinstance(value, str) else value for key, value in one.arguments.items()}
        )
        for one in calls
    ],
    "calls twice": lambda calls: [*calls, *calls],
}


@pytest.mark.parametrize("what", WRONG)
@pytest.mark.parametrize("reading", ["strictly", "as_served"])
def test_a_reader_with_a_fault_is_found(what, reading):
    rows = [one for one in ROWS if one.dialect in SERVED]
    wrong = {"strictly": {"strictly": _strictly(WRONG[what])}, "as_served": {"as_served": _served(WRONG[what])}}
    found = compared(rows, **wrong[reading])
    assert found.served != compared(rows).served or found.unexplained


def test_the_strings_are_of_every_make_and_are_not_made_by_chance():
    assert {one.how for one in ROWS} >= {"clean", "around", "in a thought", "fenced", "unclosed", "cut", "left out"}
    assert list(made(random.Random(3), "hermes", 8)) == list(made(random.Random(3), "hermes", 8))
    assert VERSION == "0.33.0"
