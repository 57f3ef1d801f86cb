"""A slice of the row `reasoning`, and splitters with a fault, which it must find."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.scoring.reasoning import Said, split
from qualgate.scoring.reasoning_forms import FORMS as TAGGED
from tests.verification.references.reasoning_splits import FORMS, differential


def test_a_slice_is_split_as_the_oracle_splits_it():
    tally = differential(1_200, 3)
    assert tally.differences == []
    assert tally.agree
    assert {name.partition(":")[0] for name in tally.asked} == {*FORMS}
    assert all(tally.true[f"{way}: verdicts"] for way in FORMS), "of each form some verdicts are right"


def _at_the_last_marker(text: str, way: str) -> Said:
    if way not in TAGGED or TAGGED[way].closing not in text:
        return split(text, way)
    thought, _, answer = text.rpartition(TAGGED[way].closing)
    return Said(thought=thought.removeprefix(TAGGED[way].opening), answer=answer.lstrip(), state="ended")


WRONG = {
    "reads to the last marker": _at_the_last_marker,
    "takes an open thought for the answer": lambda text, way: (
        replace(said, answer=said.thought) if (said := split(text, way)).state == "open" else said
    ),
    "keeps what is blank": lambda text, way: replace(said := split(text, way), answer="\n" + said.answer),
    "does not know that the prompt opened it": lambda text, way: split(text, way.removesuffix("_opened")),
    "takes analysis for the answer": lambda text, way: replace(
        said := split(text, way), answer=said.thought + said.answer if way == "harmony" else said.answer
    ),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_splitter_with_a_fault_is_found(what):
    assert not differential(330, 3, WRONG[what]).agree
