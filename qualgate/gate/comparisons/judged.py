"""Rules on what a judge prefers: each pair goes to the variant, to the baseline or to neither.

Won against lost pairs are tested as right and wrong answers are, by the exact paired test of `quality`. `judge.win`
counts a tie as half, so its loss is half of the net share of pairs lost. A rule is kept or broken only if both samples
agree: all pairs, and the pairs balanced by style (`stats.preferences`), in which a taste for long or formatted answers
cancels. A judge also errs by chance, which makes a loss look smaller; its floor limits how much.

People (`people.win`) are the measure themselves: they have no floor, and their taste counts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.comparisons.pairs import clusters_of
from qualgate.gate.comparisons.quality import too_few
from qualgate.gate.comparisons.result import Measured, comparison, unmeasured
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.evidence.judged import below_floor
from qualgate.gate.rules import Slice
from qualgate.records import Judged, JudgedArm
from qualgate.records.judged import UNCOMPARED
from qualgate.records.metrics import PEOPLE
from qualgate.stats.paired.compare import MIN_CLUSTERS, PairedResult, compare_clustered_pairs, compare_pairs
from qualgate.stats.power import MOST_TIMES, pairs_needed
from qualgate.stats.preferences import balanced
from qualgate.text.numbers import counted

EQUAL = 0.5  # of pairs that equal arms win
NOBODY = "no judge compared these answers; `qualgate run` asks the one that `judge` in the gate file names"
NO_PEOPLE = "nobody has compared these answers: `Compare blind` in `qualgate dashboard`, then `qualgate gate`"
POWER = 0.8


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """Won and lost pairs of one sample, 0 or 1 each. Arrays: [pairs]."""

    lost: NDArray
    won: NDArray
    clusters: NDArray

    def compared(self, margin: float, alpha: float) -> PairedResult:
        """margin: of won minus lost pairs, as a share."""
        n = len(self.won)
        if len(np.unique(self.clusters)) == n:
            return compare_pairs(int(self.lost.sum()), int(self.won.sum()), n, margin, alpha)
        return compare_clustered_pairs(self.lost, self.won, self.clusters, margin, alpha)

    def few(self) -> bool:
        """Whether clusters are too few to be compared."""
        count = len(np.unique(self.clusters))
        return count < len(self.won) and count < MIN_CLUSTERS


def measure_judged(slice_: Slice, pairs: Sequence[Pair], judged_arm: JudgedArm | None, alpha: float) -> Measured:
    """Measure a rule on preferences; undecided below the judge's floor. An unjudged pair counts as lost for an approval
    and as won for a block."""
    n, by_people = len(pairs), slice_.rule.metric == PEOPLE
    if judged_arm is None:
        return unmeasured(slice_, n, f"{NO_PEOPLE}. {_needs(slice_, n, n, alpha)}" if by_people else NOBODY)
    if why := below_floor(judged_arm, alpha):
        return unmeasured(slice_, n, why)
    keys = [(pair.variant.key.evalset, pair.variant.key.case_id, pair.variant.key.repeat) for pair in pairs]
    if missing := sum(key not in judged_arm.pairs for key in keys):
        return unmeasured(
            slice_, n, f"{missing} of {counted(n, 'pair')} were not judged by it: qualgate rescore with this gate file"
        )
    judgements, clusters = [judged_arm.pairs[key] for key in keys], clusters_of(pairs)
    differ = [key for key in keys if key in judged_arm.votes]
    needs = f". {_needs(slice_, n, len(differ), alpha)}" if by_people else ""
    if all(judgement.win is None for judgement in judgements):
        return unmeasured(slice_, n, _undecided_pairs(judgements) + needs)
    keep = balanced([judgement.style for judgement in judgements], [f"{key[0]}\0{key[1]}" for key in keys])
    samples = [np.ones(n, bool), keep]
    if any(_sides(judgements, clusters, sample, EQUAL).few() for sample in samples):
        few = f"clusters of cases of alike style are too few to compare ({MIN_CLUSTERS} needed)"
        return unmeasured(slice_, n, few)
    measured = _tested(slice_, judgements, clusters, samples, alpha)
    settled = min(measured.p_within, measured.comparison.p_broken or 1.0) <= alpha
    if by_people and measured.unsaid and not settled:  # its numbers are no result, and may not sway who goes on
        return unmeasured(slice_, n, measured.unsaid + needs)
    return measured


def _tested(
    slice_: Slice, judgements: Sequence[Judged], clusters: NDArray, samples: Sequence[NDArray], alpha: float
) -> Measured:
    """Test on each sample. samples: masks [pairs], all pairs first; an empty balanced sample proves nothing."""
    n, margin = len(judgements), 2 * (slice_.rule.max_drop or 0.0)
    shown = _sides(judgements, clusters, samples[0], EQUAL)
    worst = [_sides(judgements, clusters, sample, 0.0).compared(margin, alpha) for sample in samples if sample.any()]
    best = [_sides(judgements, clusters, sample, 1.0).compared(margin, alpha) for sample in samples if sample.any()]
    empty = len(worst) < len(samples)
    within = 1.0 if empty else max(result.p_within for result in worst)
    beyond = 1.0 if empty else max(result.p_beyond for result in best)
    lost, won, unsaid = int(shown.lost.sum()), int(shown.won.sum()), _undecided_pairs(judgements)
    settled = min(within, beyond) <= alpha or len(np.unique(clusters)) < n or unsaid or not samples[1].all()
    change = (won - lost) / (2 * n)
    return Measured(
        slice=slice_,
        comparison=comparison(
            slice_,
            n=n,
            clusters=None if len(np.unique(clusters)) == n else len(np.unique(clusters)),
            baseline=EQUAL,
            variant=EQUAL + change,
            difference=change,
            lower=min(result.lower for result in worst) / 2,
            upper=max(result.upper for result in best) / 2,
            lost=lost,
            gained=won,
            p_broken=beyond,
            needed=None if settled else pairs_needed(lost, won, n, margin, alpha),
            method=f"judged_{worst[0].method}",
        ),
        p_within=within,
        obstacle=_obstacle(slice_, samples[1], clusters, alpha),
        unsaid=unsaid,
    )


def _needs(slice_: Slice, n: int, differing: int, alpha: float) -> str:
    """Say how many pairs prove the rule where as many are won as lost, none of those that differ being a tie."""
    half = differing / 2
    needed = pairs_needed(half, half, n, 2 * (slice_.rule.max_drop or 0.0), alpha, POWER)  # each half of a pair counts
    if needed is not None and needed <= n + 1:
        enough = "These suffice"
    else:
        enough = f"That takes about {needed:,} pairs" if needed else f"That takes over {MOST_TIMES * n:,} pairs"
    return (
        f"{enough} to prove with {POWER:.0%} power that a variant that wins as often as it loses is within the limit; "
        f"there are {n:,}, of which {differing:,} differ"
    )


def _obstacle(slice_: Slice, keep: NDArray, clusters: NDArray, alpha: float) -> str:
    """Say why the pairs of alike style prove nothing: there are none, or too few clusters for twice the margin; ""
    otherwise.

    keep: [pairs] of alike style. Without pairs that share a cluster there is no obstacle.
    """
    if not keep.any():
        return f"{slice_.head}: no pair is of alike style, and a taste for one cannot be told from a better answer"
    balanced_clusters = clusters[keep]
    if len(np.unique(balanced_clusters)) == len(balanced_clusters):
        return ""
    doubled = replace(slice_, rule=replace(slice_.rule, max_drop=2 * (slice_.rule.max_drop or 0.0)))
    return too_few(doubled, balanced_clusters, alpha)


def _sides(judgements: Sequence[Judged], clusters: NDArray, sample: NDArray, unknown: float) -> _Sides:
    """Won and lost pairs of a sample. unknown: the value of a pair that the judge could not judge."""
    wins = np.array([unknown if judgement.win is None else judgement.win for judgement in judgements], float)[sample]
    return _Sides(lost=(wins == 0.0).astype(float), won=(wins == 1.0).astype(float), clusters=clusters[sample])


def _undecided_pairs(judgements: Sequence[Judged]) -> str:
    """Count the judge's reasons for pairs that it could not decide; "" if it decided all."""
    unjudged = [judgement for judgement in judgements if judgement.win is None]
    if not unjudged:
        return ""
    words = Counter(judgement.why.partition(":")[0] for judgement in unjudged)
    named = ", ".join(f"{word} {count}" for word, count in sorted(words.items()))
    pairs = counted(len(judgements), "pair")
    if all(judgement.why == UNCOMPARED for judgement in unjudged):
        return f"people have yet to compare {len(unjudged):,} of {pairs}: `Compare blind` in `qualgate dashboard`"
    return f"the judge could not say for {len(unjudged)} of {pairs} ({named}; first: {unjudged[0].why})"
