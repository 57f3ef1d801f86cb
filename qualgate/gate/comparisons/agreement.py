"""Measure how many answers are identical: the variant's to the baseline's token for token, the baseline's own in other
batches, and a variant's repeats of one case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qualgate.gate.comparisons.pairs import clusters_of, pairs_of
from qualgate.gate.comparisons.result import Measured, bounded, few_cases, observed, unmeasured
from qualgate.gate.comparisons.unsaid import between
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.rules import Slice
from qualgate.records import UnitEvidence
from qualgate.stats.intervals import clustered_share
from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.text.numbers import counted

METHOD_SHARE = "share_of_cases_binomial/2"


def measure_parity(slice_: Slice, pairs: Sequence[Pair], alpha: float) -> Measured:
    """Measure a parity rule. `min: 1` is a fact about these answers: an exact proposer changes none, so a single one
    that differs is proof. A smaller share is tested."""
    clusters = clusters_of(pairs)
    if slice_.rule.metric == "parity.scores":
        sides = [(_scores(pair.baseline), _scores(pair.variant)) for pair in pairs]
        if silent := sum(not (a and b) for a, b in sides):
            return unmeasured(slice_, len(pairs), f"{silent} of {counted(len(pairs), 'pair')} lack an answer's scores")
        same = np.array([a == b and all(value is not None for _, value in a) for a, b in sides], float)
        return _at_least(slice_, same, clusters, alpha)
    if why := _unstored(pairs):
        return unmeasured(slice_, len(pairs), why)
    if slice_.rule.metric == "parity.prefix":
        tokens = np.array([len(pair.baseline.token_ids) // 4 for pair in pairs], float)
        return _at_least(slice_, np.array([*map(common_tokens, pairs)], float), clusters, alpha, tokens)
    return _at_least(slice_, _same(pairs), clusters, alpha)


def _unstored(pairs: Sequence[Pair]) -> str:
    silent = sum(not (pair.baseline.token_ids and pair.variant.token_ids) for pair in pairs)
    return f"the tokens of {silent} of {counted(len(pairs), 'answer')} were not stored" if silent else ""


def _same(pairs: Sequence[Pair]) -> np.ndarray:
    """[pairs] 1 where both arms gave the same tokens."""
    return np.array([pair.baseline.token_ids == pair.variant.token_ids for pair in pairs], float)


def common_tokens(pair: Pair) -> int:
    """Tokens (int32 each) before the first that differs."""
    before, after = (np.frombuffer(unit.token_ids, "<i4") for unit in (pair.baseline, pair.variant))
    shared = min(len(before), len(after))
    differs = np.flatnonzero(before[:shared] != after[:shared])
    return int(differs[0]) if len(differs) else shared


def measure_stability(
    slice_: Slice, pairs: Sequence[Pair], rerun: Mapping[str, Sequence[Pair]], alpha: float
) -> Measured:
    """Measure a stability rule. rerun: the pairs of the A/A arm. `min: 1` requires that no answer differs; a smaller
    share is tested."""
    if slice_.rule.metric == "stability.repeats":
        return _repeats(slice_, pairs, alpha)
    rerun_pairs = pairs_of(slice_, rerun)
    if not rerun_pairs:
        return unmeasured(slice_, 0, "the baseline was not run against itself: write `noise_floor: true` and run again")
    if why := _unstored(rerun_pairs):
        return unmeasured(slice_, len(rerun_pairs), why)
    return _at_least(slice_, _same(rerun_pairs), clusters_of(rerun_pairs), alpha)


def _repeats(slice_: Slice, pairs: Sequence[Pair], alpha: float) -> Measured:
    """Measure the share of cases whose repeats all have the same scores. Cases of one cluster depend on each other."""
    scores_by_case: dict[tuple[str, str], list[tuple[tuple[str, float | None], ...]]] = {}
    clusters: dict[tuple[str, str], int] = {}
    for pair in pairs:
        case = pair.variant.key.evalset, pair.variant.key.case_id
        scores_by_case.setdefault(case, []).append(_scores(pair.variant))
        clusters[case] = pair.cluster
    answered_once = sum(len(scores) < 2 for scores in scores_by_case.values())
    if answered_once:
        return unmeasured(
            slice_,
            len(scores_by_case),
            f"{answered_once} of {counted(len(scores_by_case), 'case')} were answered once: nothing shows whether they "
            "would be answered alike again",
        )
    if not all(scores for repeats in scores_by_case.values() for scores in repeats):
        return unmeasured(slice_, len(scores_by_case), "an answer has no score")
    labels = np.array([*clusters.values()])
    surely = [
        len(set(scores)) == 1 and all(value is not None for _, value in scores[0]) for scores in scores_by_case.values()
    ]
    perhaps = [_may_be_alike(scores) for scores in scores_by_case.values()]
    worst, best = (_at_least(slice_, np.array(is_stable, float), labels, alpha) for is_stable in (surely, perhaps))
    if not (undecided_cases := sum(perhaps) - sum(surely)):
        return worst
    return between(
        worst, best, f"the scorer could not say for {undecided_cases} of {counted(len(scores_by_case), 'case')}"
    )


def _may_be_alike(scores: Sequence[tuple[tuple[str, float | None], ...]]) -> bool:
    """Whether the answers' scores are equal if every null is replaced by the others' value."""
    known: dict[str, set[float]] = {}
    for name, value in (score for answer in scores for score in answer):
        if value is not None:
            known.setdefault(name, set()).add(value)
    return all(len(values) == 1 for values in known.values())


def _scores(unit: UnitEvidence) -> tuple[tuple[str, float | None], ...]:
    return tuple(sorted((name, unit.values[name]) for name in unit.scorers if name in unit.values))


def _at_least(
    slice_: Slice, same: np.ndarray, clusters: np.ndarray, alpha: float, of: np.ndarray | None = None
) -> Measured:
    """Compare the share of equal answers with `min`. of: by answer, the whole of `same`; 1 each by default."""
    if slice_.rule.min == 1:  # no sample proves that nothing ever differs
        share = float(same.sum() / (len(same) if of is None else of.sum()))
        return observed(slice_, len(same), share, within_limit=share == 1, method="same_answers_observed/1")
    return share_of_cases(slice_, same, clusters, alpha, of)


def share_of_cases(
    slice_: Slice, hits: np.ndarray, clusters: np.ndarray, alpha: float, of: np.ndarray | None = None
) -> Measured:
    """The share of cases with a hit (0 or 1 each, or a number up to that in `of`) against the rule's `min`, exact, by
    clusters."""
    n, limit, count = len(hits), slice_.rule.min or 0.0, len(np.unique(clusters))
    if count < MIN_CLUSTERS:
        return unmeasured(slice_, n, few_cases(count))
    bounds = clustered_share(hits, np.ones(n) if of is None else of, clusters, limit, alpha)
    return bounded(slice_, n, bounds, variant=bounds.estimate, method=METHOD_SHARE)
