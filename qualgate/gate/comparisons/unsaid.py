"""Scores that nobody could give (null): no veto, and no gift either.

Of what nobody knows, an approval takes the worst (the baseline right, the variant wrong) and a block the best (the
baseline wrong, the variant right). The worst loses as much as the truth or more, and the best no more than it, so that
either test errs no more often than it does on scores that are all known. The rates that are shown take a null to be
what the other side is: unchanged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from qualgate.formatting import counted
from qualgate.gate.comparisons.result import Measured
from qualgate.gate.evidence.checks import Pair

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
    """Something made of both arms' scores, as these may be taken; all three are one where every score was given."""

    shown: T
    worst: T  # what an approval rests on
    best: T  # what a block rests on
    unsaid: str = ""  # how many answers have a null, and why, in words; "" = none
    silent: bool = False  # none has a score on both sides

    def each(self, made: Callable[[T], R]) -> Taken[R]:
        """What is made of each of the three."""
        if not self.unsaid:
            return Taken(shown=(one := made(self.shown)), worst=one, best=one)
        return Taken(
            shown=made(self.shown), worst=made(self.worst), best=made(self.best), unsaid=self.unsaid, silent=self.silent
        )


def taken(metric: str, pairs: Sequence[Pair]) -> Taken[Outcomes]:
    """Of pairs that the metric was asked of."""
    before = np.array([pair.baseline.values[metric] for pair in pairs], float)  # None becomes NaN
    after = np.array([pair.variant.values[metric] for pair in pairs], float)
    null = np.isnan(before) | np.isnan(after)

    def filled(one: NDArray | float, other: NDArray | float) -> Outcomes:
        return Outcomes(
            baseline=np.where(np.isnan(before), one, before), variant=np.where(np.isnan(after), other, after)
        )

    return Taken(
        shown=filled(np.nan_to_num(after), np.nan_to_num(before)),
        worst=filled(RIGHT, WRONG),
        best=filled(WRONG, RIGHT),
        unsaid=_said(metric, pairs, int(null.sum())) if null.any() else "",
        silent=bool(null.all()),
    )


def _said(metric: str, pairs: Sequence[Pair], count: int) -> str:
    words = Counter(
        word
        for pair in pairs
        for word in {unit.unsaid.get(metric, "") for unit in (pair.baseline, pair.variant)}
        if word
    )
    named = ", ".join(f"{word} {times}" for word, times in sorted(words.items(), key=lambda item: (-item[1], item[0])))
    return f"the scorer could not say for {count} of {counted(len(pairs), 'case')}" + (f" ({named})" if named else "")


def between(worst: Measured, best: Measured, unsaid: str) -> Measured:
    """What holds however the nulls came out: kept where the worst is, broken where the best is."""
    numbers = replace(best.comparison, variant=worst.comparison.variant, lower=worst.comparison.lower)
    return replace(worst, comparison=numbers, unsaid=unsaid)
