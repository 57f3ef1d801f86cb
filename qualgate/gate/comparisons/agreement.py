"""How far answers are the same: the variant's and the baseline's token for token, the baseline's own in other batches,
and a variant's repeats of one case.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from qualgate.formatting import counted
from qualgate.gate.comparisons.result import Measured, comparison, observed, unmeasured
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.rules import Slice
from qualgate.records import UnitEvidence
from qualgate.stats.intervals import clustered_share
from qualgate.stats.paired.compare import MIN_CLUSTERS

METHOD_SHARE = "share_of_cases_binomial/2"


def measure_parity(part: Slice, pairs: Sequence[Pair], alpha: float) -> Measured:
    """`min: 1` is a fact about these answers: an exact proposer changes none, so a single one that differs is proof.
    A smaller share is tested."""
    n = len(pairs)
    silent = sum(not (pair.baseline.token_ids and pair.variant.token_ids) for pair in pairs)
    if silent:
        return unmeasured(part, n, f"the tokens of {silent} of {counted(n, 'answer')} were not stored")
    clusters = np.array([pair.cluster for pair in pairs])
    if part.rule.metric == "parity.prefix":
        tokens = np.array([len(pair.baseline.token_ids) // 4 for pair in pairs], float)
        return _at_least(part, np.array([*map(common_tokens, pairs)], float), clusters, alpha, tokens)
    same = np.array([pair.baseline.token_ids == pair.variant.token_ids for pair in pairs], float)
    return _at_least(part, same, clusters, alpha)


def common_tokens(pair: Pair) -> int:
    """Tokens (int32 each) before the first that differs."""
    ours, theirs = (np.frombuffer(unit.token_ids, "<i4") for unit in (pair.baseline, pair.variant))
    shared = min(len(ours), len(theirs))
    differs = np.flatnonzero(ours[:shared] != theirs[:shared])
    return int(differs[0]) if len(differs) else shared


def measure_stability(
    part: Slice, pairs: Sequence[Pair], rerun: Mapping[str, Sequence[Pair]], alpha: float
) -> Measured:
    """rerun: the pairs of the A/A arm. `min: 1` asks that none of these answers differs; a smaller share is tested."""
    if part.rule.metric == "stability.repeats":
        return _repeats(part, pairs, alpha)
    mine = [
        pair
        for name in part.evalsets
        for pair in rerun.get(name, ())
        if part.only is None or (name, pair.baseline.key.case_id) in part.only
    ]
    if not mine:
        return unmeasured(part, 0, "the baseline was not run against itself: write `noise_floor: true` and run again")
    silent = sum(not (pair.baseline.token_ids and pair.variant.token_ids) for pair in mine)
    if silent:
        return unmeasured(part, len(mine), f"the tokens of {silent} of {counted(len(mine), 'answer')} were not stored")
    same = np.array([pair.baseline.token_ids == pair.variant.token_ids for pair in mine], float)
    return _at_least(part, same, np.array([pair.cluster for pair in mine]), alpha)


def _repeats(part: Slice, pairs: Sequence[Pair], alpha: float) -> Measured:
    """By case: whether all its repeats have the same scores. Cases of one cluster depend on each other."""
    ways: dict[tuple[str, str], list[tuple[tuple[str, float | None], ...]]] = {}
    clusters: dict[tuple[str, str], int] = {}
    for pair in pairs:
        case = pair.variant.key.evalset, pair.variant.key.case_id
        ways.setdefault(case, []).append(_scores(pair.variant))
        clusters[case] = pair.cluster
    once = sum(len(scores) < 2 for scores in ways.values())
    if once:
        return unmeasured(part, len(ways), f"{once} of {counted(len(ways), 'case')} were answered once: nothing "
                          "shows whether "
                          "they would be answered alike again")  # fmt: skip
    said = [scores for repeats in ways.values() for scores in repeats]
    if not all(said) or any(value is None for scores in said for _, value in scores):
        return unmeasured(part, len(ways), "an answer has no score")
    alike = np.array([len(set(scores)) == 1 for scores in ways.values()], float)
    return _at_least(part, alike, np.array([*clusters.values()]), alpha)


def _scores(unit: UnitEvidence) -> tuple[tuple[str, float | None], ...]:
    return tuple(sorted((name, unit.values[name]) for name in unit.scorers if name in unit.values))


def _at_least(
    part: Slice, same: np.ndarray, clusters: np.ndarray, alpha: float, of: np.ndarray | None = None
) -> Measured:
    """of: what `same` is a part of, by answer; 1 each when not given."""
    if part.rule.min == 1:  # no sample proves that nothing ever differs
        share = float(same.sum() / (len(same) if of is None else of.sum()))
        return observed(part, len(same), share, kept=share == 1, method="same_answers_observed/1")
    return share_of_cases(part, same, clusters, alpha, of)


def share_of_cases(
    part: Slice, hits: np.ndarray, clusters: np.ndarray, alpha: float, of: np.ndarray | None = None
) -> Measured:
    """The share of cases with a hit (0 or 1 each, or a number up to that in `of`) against the rule's `min`, exact, by
    clusters."""
    n, limit, count = len(hits), part.rule.min or 0.0, len(np.unique(clusters))
    if count < MIN_CLUSTERS:
        return unmeasured(
            part, n, f"{counted(count, 'independent case is', 'independent cases are')} too few ({MIN_CLUSTERS} needed)"
        )
    found = clustered_share(hits, np.ones(n) if of is None else of, clusters, limit, alpha)
    return Measured(
        slice=part,
        comparison=comparison(
            part,
            n=n,
            clusters=None if count == n else count,
            variant=found.estimate,
            lower=found.lower,
            upper=found.upper,
            p_broken=found.p_below,
            method=METHOD_SHARE,
        ),
        p_within=found.p_above,
    )
