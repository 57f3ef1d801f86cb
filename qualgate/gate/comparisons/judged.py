"""Rules on what a judge prefers: each pair goes to the variant, to the baseline or to neither.

That is a pair of right and wrong: the exact paired test of `quality` serves, of won against lost pairs. `judge.win`
counts a tie as half, so a loss of it is half of the net share of pairs lost. A verdict rests on all pairs and on those
whose style is balanced (`stats.preferences`) alike: a rule is kept or broken only where both say so, and a judge's
taste for long or formatted answers, which cancels in the latter, can neither approve nor block. It errs all the same,
as by chance, and errors make a loss look smaller: how much it may err is what its floor says.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from qualgate.formatting import counted
from qualgate.gate.comparisons.pairs import clusters_of
from qualgate.gate.comparisons.quality import too_few
from qualgate.gate.comparisons.result import Measured, comparison, unmeasured
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.evidence.judged import below_floor
from qualgate.gate.rules import Slice
from qualgate.records import Judged, JudgedArm
from qualgate.stats.paired.compare import MIN_CLUSTERS, PairedResult, compare_clustered_pairs, compare_pairs
from qualgate.stats.power import pairs_needed
from qualgate.stats.preferences import balanced

EQUAL = 0.5  # of pairs that equal arms win
NOBODY = "no judge compared these answers; `qualgate run` asks the one that `judge` in the gate file names"


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


def measure_judged(slice_: Slice, pairs: Sequence[Pair], judged: JudgedArm | None, alpha: float) -> Measured:
    """Undecided, whatever was judged, below the judge's floor. A pair that it did not judge is taken as lost by an
    approval and as won by a block."""
    n = len(pairs)
    if judged is None:
        return unmeasured(slice_, n, NOBODY)
    if why := below_floor(judged, alpha):
        return unmeasured(slice_, n, why)
    keys = [(one.variant.key.evalset, one.variant.key.case_id, one.variant.key.repeat) for one in pairs]
    if missing := sum(key not in judged.pairs for key in keys):
        return unmeasured(
            slice_, n, f"{missing} of {counted(n, 'pair')} were not judged by it: qualgate rescore with this gate file"
        )
    found, clusters = [judged.pairs[key] for key in keys], clusters_of(pairs)
    if all(one.win is None for one in found):
        return unmeasured(slice_, n, _unsaid(found))
    keep = balanced([one.style for one in found], [f"{one[0]}\0{one[1]}" for one in keys])
    samples = [np.ones(n, bool), keep]
    if any(_sides(found, clusters, sample, EQUAL).few() for sample in samples):
        few = f"clusters of cases of alike style are too few to compare ({MIN_CLUSTERS} needed)"
        return unmeasured(slice_, n, few)
    return _tested(slice_, found, clusters, samples, alpha)


def _tested(
    slice_: Slice, found: Sequence[Judged], clusters: NDArray, samples: Sequence[NDArray], alpha: float
) -> Measured:
    """samples: masks [pairs], all of them first; that of balanced style may be empty, which proves nothing."""
    n, margin = len(found), 2 * (slice_.rule.max_drop or 0.0)
    shown = _sides(found, clusters, samples[0], EQUAL)
    worst = [_sides(found, clusters, one, 0.0).compared(margin, alpha) for one in samples if one.any()]
    best = [_sides(found, clusters, one, 1.0).compared(margin, alpha) for one in samples if one.any()]
    empty = len(worst) < len(samples)
    within = 1.0 if empty else max(one.p_within for one in worst)
    beyond = 1.0 if empty else max(one.p_beyond for one in best)
    lost, won, unsaid = int(shown.lost.sum()), int(shown.won.sum()), _unsaid(found)
    told = min(within, beyond) <= alpha or len(np.unique(clusters)) < n or unsaid or not samples[1].all()
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
            lower=min(one.lower for one in worst) / 2,
            upper=max(one.upper for one in best) / 2,
            lost=lost,
            gained=won,
            p_broken=beyond,
            needed=None if told else pairs_needed(lost, won, n, margin, alpha),
            method=f"judged_{worst[0].method}",
        ),
        p_within=within,
        obstacle=_obstacle(slice_, samples[1], clusters, alpha),
        unsaid=unsaid,
    )


def _obstacle(slice_: Slice, keep: NDArray, clusters: NDArray, alpha: float) -> str:
    if not keep.any():
        return f"{slice_.head}: no pair is of alike style, and a taste for one cannot be told from a better answer"
    kept = clusters[keep]
    if len(np.unique(kept)) == len(kept):
        return ""
    doubled = replace(slice_, rule=replace(slice_.rule, max_drop=2 * (slice_.rule.max_drop or 0.0)))
    return too_few(doubled, kept, alpha)


def _sides(found: Sequence[Judged], clusters: NDArray, sample: NDArray, unknown: float) -> _Sides:
    """unknown: what a pair that the judge could not judge is taken as."""
    wins = np.array([unknown if one.win is None else one.win for one in found], float)[sample]
    return _Sides(lost=(wins == 0.0).astype(float), won=(wins == 1.0).astype(float), clusters=clusters[sample])


def _unsaid(found: Sequence[Judged]) -> str:
    null = [one for one in found if one.win is None]
    if not null:
        return ""
    words = Counter(one.why.partition(":")[0] for one in null)
    named = ", ".join(f"{word} {count}" for word, count in sorted(words.items()))
    return f"the judge could not say for {len(null)} of {counted(len(found), 'pair')} ({named}; first: {null[0].why})"
