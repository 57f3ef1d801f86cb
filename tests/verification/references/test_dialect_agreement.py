"""The row `dialects`: vLLM's strings and SGLang's; and readers with a fault, which it must find."""

from __future__ import annotations

import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from qualgate.scoring.tools.dialects import Call
from qualgate.scoring.tools.dialects.registry import dialect
from qualgate.scoring.tools.served import SERVERS, read_served
from tests.verification.references import sglang_agreement, sglang_strings
from tests.verification.references.dialect_agreement import KINDS, SERVED, Agreement, compared, table
from tests.verification.references.dialect_strings import PARSERS, TOOLS, kept, made

VERSION, ROWS = kept()
OF_SGLANG, ROWS_OF_SGLANG = sglang_strings.asked()
SLICE = [one for one in ROWS if one.dialect in SERVED][::8]
DOCS = (Path(__file__).parents[3] / "docs" / "dialects.md").read_text(encoding="utf-8")


def test_every_string_is_read_as_vllm_reads_it_or_differs_by_a_known_kind():
    found = compared(ROWS)
    assert found.unexplained == []
    assert found.holds
    assert {*found.strings} == {*PARSERS}
    assert found.share_served == 1
    assert {*found.kinds} == {*KINDS}
    assert all({*found.kinds[name]} == kind.dialects for name, kind in KINDS.items())
    assert "\n".join(table(found)) in DOCS, "python -m …dialect_agreement prints it"


def test_every_string_is_read_as_sglang_reads_it():
    found = sglang_agreement.compared(ROWS_OF_SGLANG)
    assert found.unexplained == []
    assert found.holds
    assert {*found.strings} >= {one.dialect for one in ROWS if one.dialect in sglang_strings.PARSERS}
    read = {*SERVERS["sglang"].parsers} & {*found.strings}
    assert {name: found.served[name] for name in read} == {name: found.strings[name] for name in read}
    assert "\n".join(sglang_agreement.table(found)) in DOCS, "python -m …sglang_agreement prints it"


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


@cache
def right() -> Agreement:
    return compared(SLICE)


@pytest.mark.parametrize("change", WRONG.values(), ids=[*WRONG])
def test_a_reader_with_a_fault_is_found(change):
    strictly = compared(SLICE, strictly=lambda name, text: change(dialect(name).parse(text, TOOLS)))
    assert strictly.unexplained
    served = compared(SLICE, as_served=lambda text, name: change(read_served(text, name, TOOLS)))
    assert served.served != right().served
    sglang = SERVERS["sglang"]
    rows = ROWS_OF_SGLANG[::8]
    assert sglang_agreement.compared(
        rows, lambda text, name: change(read_served(text, name, TOOLS, sglang))
    ).unexplained


def test_the_strings_are_of_every_make_and_are_not_made_by_chance():
    assert {one.how for one in ROWS} >= {"clean", "around", "in a thought", "fenced", "unclosed", "cut", "left out"}
    assert list(made(random.Random(3), "hermes", 8)) == list(made(random.Random(3), "hermes", 8))
    assert VERSION == "0.33.0"
    assert SERVERS["sglang"].name == f"SGLang {OF_SGLANG}"
    assert any(row.one.how == sglang_strings.ONE_LINE for row in ROWS_OF_SGLANG)
