"""Predict the rates of a rule on times: on their sum as any ratio of sums, on a percentile by resampling.

Groups of answers that ran together, from the earlier run's arm most like the baseline, are resampled with the variant's
times scaled to the assumed truth, and judged by the gate's own test.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import floor

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.comparisons.latency import least_groups, timed_pairs
from qualgate.gate.comparisons.pairs import pairs_of, time_groups_of
from qualgate.gate.evidence.checks import Examination
from qualgate.gate.planning.from_earlier_run.chances import UNTOLD, Chances
from qualgate.gate.planning.from_earlier_run.earlier_run import EarlierRun
from qualgate.gate.planning.from_earlier_run.ratio_of_sums import NO_RATIO, ratio_chances, saving_note, true_ratios
from qualgate.gate.rules import Slice
from qualgate.stats import percentiles

_MOST_DRAWS = 100
_FEWEST_DRAWS = 40  # of large runs, where every draw is judged by itself
_CELLS = 100_000  # draws x groups


def latency_chances(slice_: Slice, before: EarlierRun, alpha: float, strict: float) -> Chances:
    """Chances of a rule by `max_ratio`, with or without a percentile. strict: the alpha of a block."""
    if slice_.rule.percentile is None:
        return ratio_chances(slice_, before, alpha, strict)
    limit, measured = slice_.rule.max_ratio or 0.0, list(before.measured(slice_))
    if limit <= 0:
        return NO_RATIO
    times_by_arm = [(arm, result.comparison.variant, result.comparison.baseline) for arm, result in measured]
    ratios = [(arm, variant / baseline) for arm, variant, baseline in times_by_arm if variant and baseline]
    if not ratios:
        return Chances(note=before.silence(slice_, measured[-1][1]) if measured else UNTOLD)
    arm, ratio = ratios[0]
    times, (good, bad) = _Times.of(slice_, arm, ratio, slice_.rule.percentile), true_ratios(limit)
    least = least_groups(slice_.rule.percentile, alpha)
    return Chances(
        approve=lambda sizes: times.chance(sizes, good, limit, alpha) if times.groups_in(sizes) >= least else 0.0,
        block=lambda sizes: times.chance(sizes, bad, limit, strict) if times.groups_in(sizes) >= least else 0.0,
        note=saving_note(limit, f"varies as {arm.variant} did in run {before.run}"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Times:
    """Both arms' times in an earlier run, and which of them ran together."""

    baseline: NDArray  # [cases] seconds
    variant: NDArray
    ratio: float  # of their percentiles
    percentile: float
    groups: list[NDArray]  # numbers of the cases of each
    timed: float  # share of the slice's cases that have both times

    @classmethod
    def of(cls, slice_: Slice, arm: Examination, ratio: float, percentile: float) -> _Times:
        """Collect an earlier arm's times, grouped by the batches that share theirs. ratio: of the variant's to the
        baseline's.
        """
        pairs = pairs_of(slice_, arm.pairs)
        timed, seconds = timed_pairs(slice_.rule.metric, pairs)
        together, _ = time_groups_of(timed)
        order = np.argsort(together, kind="stable")
        return cls(
            baseline=seconds[:, 0],
            variant=seconds[:, 1],
            ratio=ratio,
            percentile=percentile,
            groups=np.split(order, np.flatnonzero(np.diff(together[order])) + 1),
            timed=len(timed) / len(pairs),
        )

    def groups_in(self, sizes: NDArray) -> int:
        """Number of groups like these in planned clusters of such sizes."""
        return floor(self.timed * min(len(sizes), sizes.sum() * len(self.groups) / len(self.baseline)) + 1e-9)

    def chance(self, sizes: NDArray, truth: float, limit: float, level: float) -> float:
        """Share of draws in which the gate's test finds a true ratio on its side of the limit, at that alpha."""
        count = self.groups_in(sizes)
        after, decided = self.variant * (truth / self.ratio), 0
        generator = np.random.default_rng(2)
        draws = min(_MOST_DRAWS, max(_FEWEST_DRAWS, _CELLS // count))
        test = percentiles.p_above if truth > limit else percentiles.p_below
        for _ in range(draws):
            chosen = [self.groups[index] for index in generator.integers(0, len(self.groups), count)]
            labels, rows = np.repeat(np.arange(count), [len(group) for group in chosen]), np.concatenate(chosen)
            decided += test(self.baseline[rows], after[rows], labels, self.percentile, limit, level) <= level
        return decided / draws
