"""Bound the effect of null scores, which a scorer could not give.

An approval assumes the worst (baseline right, variant wrong), a block the best (baseline wrong, variant right). The
worst loses at least as much as the truth and the best at most as much, so neither test errs more often than with all
scores known. The rates shown replace a null with the other side's score: unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.comparisons.result import Measured
from qualgate.gate.evidence.checks import Pair
from qualgate.text.numbers import counted

T = TypeVar("T")
R = TypeVar("R")
RIGHT, WRONG = 1.0, 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcomes:
    """Both arms' scores, 0..1, of the same answers. Arrays: [answers]."""

    baseline: NDArray
    variant: NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Taken(Generic[T]):
    """A value computed from both arms' scores for three fillings of the nulls; all equal where every score is known."""

    shown: T
    worst: T  # what an approval rests on
    best: T  # what a block rests on
    unsaid: str = ""  # how many answers have a null, and why, in words; "" = none
    silent: bool = False  # none has a score on both sides

    def each(self, function: Callable[[T], R]) -> Taken[R]:
        """Apply `function` to each of the three."""
        if not self.unsaid:
            return Taken(shown=(result := function(self.shown)), worst=result, best=result)
        return Taken(
            shown=function(self.shown),
            worst=function(self.worst),
            best=function(self.best),
            unsaid=self.unsaid,
            silent=self.silent,
        )


def taken(metric: str, pairs: Sequence[Pair]) -> Taken[Outcomes]:
    """Both arms' scores, with nulls filled in three ways. pairs: scored by the metric."""
    before = np.array([pair.baseline.values[metric] for pair in pairs], float)  # None becomes NaN
    after = np.array([pair.variant.values[metric] for pair in pairs], float)
    null = np.isnan(before) | np.isnan(after)

    def filled(for_baseline: NDArray | float, for_variant: NDArray | float) -> Outcomes:
        return Outcomes(
            baseline=np.where(np.isnan(before), for_baseline, before),
            variant=np.where(np.isnan(after), for_variant, after),
        )

    return Taken(
        shown=filled(np.nan_to_num(after), np.nan_to_num(before)),
        worst=filled(RIGHT, WRONG),
        best=filled(WRONG, RIGHT),
        unsaid=_unscored(metric, pairs, int(null.sum())) if null.any() else "",
        silent=bool(null.all()),
    )


def _unscored(metric: str, pairs: Sequence[Pair], count: int) -> str:
    """Say for how many cases the scorer could not say, with its reasons, the most frequent first."""
    words = Counter(
        word
        for pair in pairs
        for word in {unit.unsaid.get(metric, "") for unit in (pair.baseline, pair.variant)}
        if word
    )
    named = ", ".join(f"{word} {times}" for word, times in sorted(words.items(), key=lambda item: (-item[1], item[0])))
    return f"the scorer could not say for {count} of {counted(len(pairs), 'case')}" + (f" ({named})" if named else "")


def between(worst: Measured, best: Measured, unsaid: str) -> Measured:
    """Combine both extremes: kept if the worst is, broken if the best is."""
    numbers = replace(best.comparison, variant=worst.comparison.variant, lower=worst.comparison.lower)
    return replace(worst, comparison=numbers, unsaid=unsaid)
