"""A slice of the row `choice`, and MMLU-Pro's reading on texts that no style makes."""

from __future__ import annotations

import random

import pytest

from qualgate.scoring.filters import FILTERS as OURS
from qualgate.scoring.filters import INVALID
from tests.verification.references.agreement import LETTERS, NUMBERS, WORDS, NoReference
from tests.verification.references.choice_styles import AMBIGUOUS, FILTERS, STYLES, differential, mmlu_pro

PIECES = (*LETTERS, *NUMBERS[:4], *WORDS[:4], "answer is ", "Answer:", "answer: ", "\n", "\n\n", " ", "J", "K", "I")


def test_every_style_is_read_as_it_was_meant_and_every_filter_finds_what_its_own_finds():
    try:
        tally = differential(4 * (len(STYLES) + len(AMBIGUOUS)), 5)
    except NoReference as why:
        pytest.skip(str(why))
    assert tally.differences == []
    assert tally.agree
    assert len(STYLES) == 41
    assert {name for name in tally.asked if ":" not in name} == {*FILTERS, "mmlu_pro"}


def test_mmlu_pros_patterns_are_read_without_their_backtracking():
    draw, ours, found = random.Random(2), OURS["mmlu_pro"], set()
    for _ in range(5_000):
        text = "".join(draw.choice(PIECES) for _ in range(draw.randint(0, 12)))
        assert ours(text, {}) == mmlu_pro(text), text
        found.add(mmlu_pro(text))
    assert {"A", "J", INVALID} <= found
    assert ours("answer:" * 140_000 + " no", {}) == INVALID
