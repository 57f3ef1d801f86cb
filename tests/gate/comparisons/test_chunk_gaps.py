"""The longest waits between tokens: whose they are, what their ratio is, and when it has bounds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from qualgate.gate.comparisons.chunk_gaps import METRIC, gaps_of
from qualgate.gate.evidence.checks import Pair
from qualgate.records import UnitEvidence, UnitKey

Waits = Callable[[int], float | None]


def pairs(count: int, before: Waits, after: Waits, tokens: int = 9) -> list[Pair]:
    """Both arms answer one case a batch, one batch right after the other."""

    def unit(arm: str, number: int, wait: float | None) -> UnitEvidence:
        return UnitEvidence(
            key=UnitKey(arm, "set", f"c-{number}"), case_hash="h", status="done", values={METRIC: wait}, tokens=tokens,
            job=number, began=2.0 * number + (arm == "drafted"),
        )  # fmt: skip

    return [
        Pair(baseline=unit("baseline", at, before(at)), variant=unit("drafted", at, after(at)), cluster=at)
        for at in range(count)
    ]


def test_it_is_the_ratio_of_both_sides_percentiles_with_bounds_around_it() -> None:
    drawn = np.random.default_rng(5).lognormal(-3, 0.2, 400)
    found = gaps_of(pairs(400, lambda at: drawn[at], lambda at: 1.5 * drawn[at]), 0.05)
    assert (found.numerator, found.denominator) == pytest.approx(
        (1.5 * np.percentile(drawn, 95), np.percentile(drawn, 95))
    )
    assert found.value == pytest.approx(1.5)
    assert found.lower is not None
    assert found.upper is not None
    assert 1.0 < found.lower < 1.5 < found.upper < 2.0


def test_few_batches_have_no_bounds_and_answers_nobody_timed_no_value() -> None:
    few = gaps_of(pairs(20, lambda at: 0.1, lambda at: 0.2), 0.05)
    assert (few.value, few.lower, few.reason) == (2.0, None, "20 groups of batches, 82 needed")
    untold = gaps_of(pairs(20, lambda at: None, lambda at: 0.2), 0.05)
    assert (untold.value, untold.reason) == (None, "no wait between tokens was recorded")
    at_once = gaps_of(pairs(20, lambda at: 0.0, lambda at: 0.2), 0.05)
    assert (at_once.value, at_once.reason) == (None, "the target's tokens come at once")
