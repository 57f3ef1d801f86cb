"""Slices of the proofs of looks: cases are saved, and a test or a list that is not what it should be is found."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualgate.gate import early
from tests.verification.verdicts import early_stopping, growing_files, peeking


def test_early_stopping_saves_cases_both_ways(monkeypatch):
    monkeypatch.setattr(early_stopping, "BETWEEN", (1.0,))
    identical, twice, worst = early_stopping.early([(0.05, 0.02)], 1)[1]
    assert (identical["met"], twice["met"]) == (None, None), "40 runs of one cell are no proof"
    assert identical["so_far"]
    assert twice["so_far"]
    assert min(one["measured"]["mean"] for one in (identical, twice)) > 0.1
    assert worst["measured"]["mean"] > 1, "a truth at the margin costs more than the fixed test"


@pytest.mark.parametrize(("saved", "power", "met"), [(0.4, 0.95, None), (0.1, 0.95, False), (0.4, 0.8, False)])
def test_a_few_cells_that_save_little_or_settle_seldom_are_enough_to_miss_the_goal(saved, power, met):
    cell = {"of": "early.twice", "saved": saved, "power": power, "runs": 100, "error": 0.03, "fixed": 100, "list": 150}
    assert early_stopping._saved([cell, cell])["met"] is met


def test_a_test_that_may_not_be_asked_often_is_found(monkeypatch):
    assert peeking.peeking(peeking.KINDS[:1], 200)[1][0]["so_far"]
    sound = early.compare_in_sequence

    def lax(*given, **told):
        result = sound(*given, **told)
        return replace(result, p_within=result.p_within / 5, p_beyond=result.p_beyond / 5)

    monkeypatch.setattr(early, "compare_in_sequence", lax)
    assert peeking.peeking(peeking.KINDS[:1], 200)[1][0]["met"] is False


@pytest.mark.parametrize(("after", "word"), [(1, "approve"), (0, "block")])
def test_where_nothing_is_in_doubt_the_first_test_says_so_and_no_other_one(after, word):
    right = np.ones(growing_files.MOST, int)
    expected = {
        name: {word} if name == "early as it grows" else {word, "undecided"} for name in growing_files.SEQUENCES
    }
    assert growing_files._said(right, right * after) == expected
