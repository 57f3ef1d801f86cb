"""Rules on scores: the variant's loss, in points or as a share of the baseline's rate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import ceil

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.advice import LEAST_BASELINE_RATE, SENSITIVITY_ALPHA, advise_on_baseline, cases_about, enough_right
from qualgate.gate.comparisons.folded import Folding
from qualgate.gate.comparisons.pairs import clusters_of
from qualgate.gate.comparisons.result import Measured, comparison, unmeasured
from qualgate.gate.comparisons.unsaid import Taken, taken
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.rules import Slice
from qualgate.records import Comparison
from qualgate.stats.intervals import binomial_lower, clustered_share, independent_trials
from qualgate.stats.paired.compare import MIN_CLUSTERS, PairedResult, compare_clustered_pairs, compare_pairs
from qualgate.stats.power import pairs_needed
from qualgate.stats.relative import METHOD_RELATIVE, compare_relative
from qualgate.stats.unseen_clusters import least_provable, trials_needed
from qualgate.text.numbers import counted


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scores:
    """Both arms' scores, 0..1, of the same cases. Arrays: [cases]."""

    baseline: NDArray
    variant: NDArray
    clusters: NDArray  # numbers: cases of one may depend on each other

    @property
    def n(self) -> int:
        return len(self.baseline)

    @property
    def count(self) -> int:
        """How many clusters there are."""
        return len(np.unique(self.clusters))

    @property
    def lost(self) -> int:
        return int(np.count_nonzero(self.variant < self.baseline))

    @property
    def gained(self) -> int:
        return int(np.count_nonzero(self.variant > self.baseline))

    @property
    def single(self) -> bool:
        """Whether the exact test applies: scores are 0 or 1, and every case is its own cluster."""
        return self.count == self.n and bool(
            np.isin(self.baseline, (0, 1)).all() and np.isin(self.variant, (0, 1)).all()
        )

    def compared(self, slice_: Slice, **numbers) -> Comparison:
        """The comparison with the fields that any scores give; numbers: its other fields."""
        return comparison(
            slice_,
            n=self.n,
            clusters=None if self.count == self.n else self.count,
            baseline=float(self.baseline.mean()),
            variant=float(self.variant.mean()),
            lost=self.lost,
            gained=self.gained,
            **numbers,
        )


def measure_quality(slice_: Slice, pairs: Sequence[Pair], alpha: float) -> Measured:
    """`difference`, `lower` and `upper` are of variant − baseline; by `max_relative_drop`, in shares of the baseline's
    rate."""
    metric, n = slice_.rule.metric, len(pairs)
    unscored = sum(metric not in pair.baseline.values or metric not in pair.variant.values for pair in pairs)
    if unscored:  # stored before a rule asked for it
        return unmeasured(
            slice_, n, f"{unscored} of {counted(n, 'case')} were not scored by it: score them again (rescore)"
        )
    both_arms = taken(metric, pairs)
    if both_arms.silent:
        return unmeasured(slice_, n, both_arms.unsaid)
    try:
        folding = Folding(slice_.rule, [pair.baseline.key for pair in pairs])
    except ValueError as error:
        return unmeasured(slice_, n, str(error))
    labels = folding.clusters(clusters_of(pairs))
    scores = both_arms.each(
        lambda outcomes: _Scores(
            baseline=folding.scores(outcomes.baseline), variant=folding.scores(outcomes.variant), clusters=labels
        )
    )
    shown = scores.shown
    if not shown.single and shown.count < MIN_CLUSTERS:
        clusters = counted(shown.count, "cluster of cases is", "clusters of cases are")
        return unmeasured(slice_, shown.n, f"{clusters} too few to compare ({MIN_CLUSTERS} needed)")
    judge = _test_drop if slice_.rule.max_relative_drop is None else _test_relative_drop
    return replace(judge(slice_, scores, alpha), unsaid=both_arms.unsaid)


def _test_drop(slice_: Slice, scores: Taken[_Scores], alpha: float) -> Measured:
    """Test a loss of at most `max_drop` points. Null scores count against the claim on each side, as `scores` gives
    them.

    If an answer's score is unknown, more cases are not proposed: they would not tell it.
    """
    as_scored, margin, n = scores.shown, slice_.rule.max_drop or 0.0, scores.shown.n

    def compare(side: _Scores) -> PairedResult:
        if side.single:
            return compare_pairs(side.lost, side.gained, n, margin, alpha)
        return compare_clustered_pairs(side.baseline, side.variant, side.clusters, margin, alpha)

    result = scores.each(compare)
    within, beyond, clustered = result.worst.p_within, result.best.p_beyond, as_scored.count < n
    settled = min(within, beyond) <= alpha or clustered or scores.unsaid  # what nobody knows more cases do not tell
    return Measured(
        slice=slice_,
        comparison=as_scored.compared(
            slice_,
            difference=result.shown.difference,
            lower=result.worst.lower,
            upper=result.best.upper,
            p_broken=beyond,
            needed=None if settled else _needed(as_scored, margin, alpha),
            method=result.shown.method,
        ),
        p_within=within,
        obstacle=too_weak(slice_, scores.best.baseline, as_scored.clusters, flips=_flips(as_scored), policy_alpha=alpha)
        or (too_few(slice_, as_scored.clusters, alpha) if clustered else ""),
    )


def _flips(scores: _Scores) -> float:
    """The share of answers that changed, with one flip added: none seen is not none ever."""
    return (scores.lost + scores.gained + 1) / (scores.n + 1)


def _needed(scores: _Scores, margin: float, alpha: float) -> int | None:
    """Estimate how many cases would decide: for a loss that seems allowed, as many as prove an identical variant (as in
    `plan`); for a larger one, as many as its own size takes."""
    identical = cases_about(float(scores.baseline.mean()), _flips(scores), margin, alpha)
    if scores.lost - scores.gained <= margin * scores.n and (identical is None or identical > scores.n):
        return identical
    return pairs_needed(scores.lost, scores.gained, scores.n, margin, alpha)


def too_few(slice_: Slice, clusters: NDArray, alpha: float) -> str:
    """Say why so few clusters cannot prove the margin, however alike the arms; "" when they can.

    A cluster may fail as a whole, and a small sample may miss all that do (see `stats.unseen_clusters`).
    """
    margin, independent = slice_.rule.max_drop or 0.0, independent_trials(np.ones(len(clusters)), clusters, alpha)
    least = least_provable(independent, alpha)
    if margin >= least:
        return ""
    return (
        f"{slice_.head}: {counted(int(independent), 'independent case')} can prove no loss under "
        f"{ceil(1000 * least) / 10:g} points; {trials_needed(margin, alpha):,} would be needed at least"
    )


def too_weak(
    slice_: Slice,
    baseline: NDArray,
    clusters: NDArray,
    alpha: float = SENSITIVITY_ALPHA,
    *,
    flips: float | None = None,
    policy_alpha: float = 0.05,
) -> str:
    """Say why a baseline that is right so rarely cannot lose the margin; "" when it surely is often enough.

    baseline: its value on each case. alpha: the chance that a baseline below the limit passes. flips: the share of
    answers that change; None: predict no number of cases.
    """
    n, margin = len(baseline), slice_.rule.max_drop or 0.0
    single = np.isin(baseline, (0, 1)).all() and len(np.unique(clusters)) == n
    if single:
        right = binomial_lower(int(baseline.sum()), n, alpha)
    else:
        right = clustered_share(baseline, np.ones(n), clusters, 0.0, alpha).lower
    enough = enough_right(slice_.rule, margin)
    if right >= enough:
        return ""
    return (
        f"{slice_.head}: {slice_.base} is right on {baseline.mean():.1%} of {counted(n, 'case')} "
        f"({100 * (1 - alpha):.4g} % bound: at least {right:.1%}); "
        f"under {enough:.0%} a loss of {100 * margin:g} points would not show; "
        f"{advise_on_baseline(slice_.rule, float(baseline.mean()), flips if single else None, policy_alpha)}"
    )


def _test_relative_drop(slice_: Slice, scores: Taken[_Scores], alpha: float) -> Measured:
    """Test a loss of at most `max_relative_drop` of the baseline's rate.

    A baseline that is not surely right often enough is an obstacle: a loss of so few answers would not show.
    """
    as_scored, limit, surely_right = scores.shown, slice_.rule.max_relative_drop or 0.0, scores.best.baseline
    result = scores.each(lambda side: compare_relative(side.baseline, side.variant, side.clusters, limit, alpha))
    right = clustered_share(surely_right, np.ones(as_scored.n), as_scored.clusters, 0.0, SENSITIVITY_ALPHA).lower
    obstacle = ""
    if right < LEAST_BASELINE_RATE:
        obstacle = (
            f"{slice_.head}: {slice_.base} is right on {surely_right.mean():.1%} of {counted(as_scored.n, 'case')} "
            f"(95 % bound: at least {right:.1%}); "
            f"under {LEAST_BASELINE_RATE:.0%} a loss of {limit:.1%} of it would not show; "
            f"{advise_on_baseline(slice_.rule, float(surely_right.mean()), None, alpha)}"
        )
    return Measured(
        slice=slice_,
        comparison=as_scored.compared(
            slice_,
            difference=result.shown.change,
            lower=result.worst.lower,
            upper=result.best.upper,
            p_broken=result.best.p_beyond,
            method=METHOD_RELATIVE,
        ),
        p_within=result.worst.p_within,
        obstacle=obstacle,
    )
