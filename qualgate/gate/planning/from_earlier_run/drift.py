"""Predict the rates of rules on drift: on sums over positions, on lengths, and on common beginnings.

Clusters of the earlier run are resampled, their drift scaled to twice the limit, and judged by the gate's own tests. An
identical variant does not drift, so approvals need no draws.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import floor, inf, log

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.comparisons.agreement import common_tokens
from qualgate.gate.comparisons.drift import UNSEEN_KL
from qualgate.gate.comparisons.lengths import LENGTHS, having, length_bounds, tokens
from qualgate.gate.comparisons.pairs import clusters_of, pairs_of
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.planning.from_earlier_run.agreement import share_chances
from qualgate.gate.planning.from_earlier_run.chances import UNTOLD, Chances
from qualgate.gate.planning.from_earlier_run.earlier_run import EarlierRun, same_weights
from qualgate.gate.planning.from_earlier_run.ratio_of_sums import saving_note, true_ratios
from qualgate.gate.rules import Slice
from qualgate.records import Rule
from qualgate.stats.intervals import clustered_share, nonnegative_ratio
from qualgate.stats.paired.compare import MIN_CLUSTERS

DRAWS = 400  # of an earlier run's clusters: a rate is within 7 points (3 standard errors)
_LEAST_DRAWS = 100
_CELLS = 1_000_000  # draws x clusters


def drift_chances(slice_: Slice, before: EarlierRun, alpha: float, strict: float) -> Chances:
    """Chances of a rule on drift or parity. strict: the alpha of a block."""
    rule = slice_.rule
    if rule.metric in ("parity.tokens", "parity.scores"):
        return share_chances(slice_, before, alpha, strict)
    by_length, longest_ratio = rule.metric in LENGTHS, None
    if by_length and (longest_ratio := before.longest(slice_)) is None:
        what = "answers" if rule.metric == LENGTHS[0] else "thoughts"
        return Chances(note=f"no earlier run tells how long its {what} are and may become")
    lengths, worse = before.lengths(slice_), _nearest_to_twice(slice_, before)

    def approve(sizes: NDArray) -> float:
        spread = np.quantile(lengths, (np.arange(len(sizes)) + 0.5) / len(sizes))
        weights = sizes * np.random.default_rng(0).permutation(spread)
        drift = weights * true_ratios(rule.max or 0.0)[0] if by_length else 0 * weights
        return float(_p_values(rule, drift, weights, alpha, longest_ratio)[0] <= alpha)

    note = f"an identical variant {'says the same' if rule.metric == 'parity.prefix' else 'does not drift'}"
    if by_length:
        note = saving_note(rule.max or 0.0, "an identical variant is as long")
    elif len(lengths) == 1:
        note += ", and answers are taken to be equally long (of unlike ones more cases are needed)"
    if worse is None:
        silent = f"run {before.run} does not tell how much it varies" if before.run else UNTOLD
        twice = "twice nothing is nothing" if _allowance(rule) == 0 else silent
        return Chances(approve=approve, note=f"{note}; {twice}")
    arm, cases, scaled = worse

    def block(sizes: NDArray) -> float:
        clusters = max(1, floor(min(len(sizes), sizes.sum() * len(scaled.drift) / cases) + 1e-9))
        draws = min(DRAWS, max(_LEAST_DRAWS, _CELLS // clusters))
        rows = np.random.default_rng(1).integers(0, len(scaled.drift), (draws, clusters))
        broken = [
            _p_values(rule, scaled.drift[row], scaled.weights[row], alpha, longest_ratio)[1] <= strict for row in rows
        ]
        return float(np.mean(broken))

    return Chances(approve=approve, block=block, note=f"{note}; varies as {arm} did in run {before.run}")


def _allowance(rule: Rule) -> float:
    """The drift that the rule allows, or the share that may differ."""
    if rule.metric in LENGTHS:
        return (rule.max or 0.0) - 1
    return rule.max if rule.max is not None else 1 - (rule.min or 0.0)


def _p_values(
    rule: Rule, drift: NDArray, weights: NDArray, alpha: float, longest_ratio: float | None = None
) -> tuple[float, float]:
    """(p of "the limit is breached", p of "it is kept") as `comparisons.drift` has them.

    drift: of each cluster, what an identical variant has none of; of the length ratio, its tokens. [clusters]
    longest_ratio: how long an answer may become, in times of the mean.
    """
    limit, each = _allowance(rule), np.arange(len(drift))
    match rule.metric:
        case "drift.kl_max":
            return float(drift.max() > limit), float(drift.max() <= limit)
        case "parity.prefix" if limit == 0:
            return float(drift.any()), float(not drift.any())
        case _ if len(drift) < MIN_CLUSTERS:
            return 1.0, 1.0
        case "drift.kl_mean":
            bounds = nonnegative_ratio(drift, weights, each, limit, alpha, **UNSEEN_KL)
        case metric if metric in LENGTHS:
            bounds = length_bounds(drift, weights, each, limit + 1, alpha, longest_ratio)
        case "drift.kl_p99":
            bounds = clustered_share(drift, weights, each, 0.01, alpha)
        case _:  # drift.top1_agreement, parity.prefix
            bounds = clustered_share(drift, weights, each, limit, alpha)
    return bounds.p_below, bounds.p_above


# ---------------------------------------------------------------------------------- a drift of twice what is allowed


@dataclass(frozen=True, slots=True, kw_only=True)
class _Scaled:
    """An arm's drift, scaled to twice what a rule allows. Arrays: [clusters]."""

    factor: float
    drift: NDArray
    weights: NDArray  # positions, or tokens, over which it is taken


def _nearest_to_twice(slice_: Slice, before: EarlierRun) -> tuple[str, int, _Scaled] | None:
    """Find the variant whose drift is nearest to twice the limit: (name, cases, scaled drift); None if none drifts."""
    least, nearest = inf, None
    for arm in before.arms:
        pairs = pairs_of(slice_, arm.pairs)
        if same_weights(arm) or not pairs or before.measure(slice_, arm).comparison.variant is None:
            continue
        scaled = _scaled_to_twice(slice_.rule, pairs)
        if scaled is not None and abs(log(scaled.factor)) < least:
            least, nearest = abs(log(scaled.factor)), (arm.variant, len(pairs), scaled)
    return nearest


def _scaled_to_twice(rule: Rule, pairs: Sequence[Pair]) -> _Scaled | None:
    """Scale an arm's drift to twice the limit; None if there is nothing to scale, or no factor would do."""
    pairs = having(rule.metric, pairs)
    labels, members = np.unique(clusters_of(pairs), return_inverse=True)

    def summed(value: Callable[[Pair], float]) -> NDArray:
        """[clusters] the sum over each one's pairs."""
        return np.bincount(members, np.asarray([value(pair) for pair in pairs], float), len(labels))

    weights = summed(lambda pair: len(pair.variant.kl))
    match rule.metric:
        case "drift.kl_p99":
            return _percentile_to_twice(rule, pairs, summed, weights)
        case "drift.kl_max":
            drift = np.zeros(len(labels))
            np.maximum.at(drift, members, [max(pair.variant.kl) for pair in pairs])
            return _times(2 * _allowance(rule), drift.max(), drift, weights)
        case metric if metric in LENGTHS:
            drift = summed(lambda pair: tokens(metric, pair.variant) or 0)
            weights = summed(lambda pair: tokens(metric, pair.baseline) or 0)
            twice = true_ratios(_allowance(rule) + 1)[1]
            return _times(twice * weights.sum(), drift.sum(), drift, weights)
        case "drift.kl_mean":
            drift = summed(lambda pair: sum(pair.variant.kl))
            return _times(2 * _allowance(rule) * weights.sum(), drift.sum(), drift, weights)
        case "parity.prefix":
            weights = summed(lambda pair: len(pair.baseline.token_ids) // 4)
            return _share_to_twice(rule, weights - summed(common_tokens), weights)
        case _:  # drift.top1_agreement
            agreed = summed(lambda pair: len(pair.variant.kl) * (pair.variant.top1_agreement or 0.0))
            return _share_to_twice(rule, weights - agreed, weights)


def _times(target: float, measured: float, drift: NDArray, weights: NDArray) -> _Scaled | None:
    """Scale the drift by target / measured; None without drift."""
    factor = target / measured if measured > 0 else 0.0
    return _Scaled(factor=factor, drift=factor * drift, weights=weights) if factor > 0 else None


def _percentile_to_twice(
    rule: Rule, pairs: Sequence[Pair], summed: Callable[[Callable[[Pair], float]], NDArray], weights: NDArray
) -> _Scaled | None:
    """Count positions above half the arm's own percentile: scaled to twice the limit, they exceed the limit."""
    twice = 2 * _allowance(rule)
    level = float(np.quantile(np.concatenate([pair.variant.kl for pair in pairs]), 0.99))
    if twice <= 0 or level <= 0:
        return None
    over = summed(lambda pair: float(np.count_nonzero(np.array(pair.variant.kl) > level / 2)))
    return _Scaled(factor=twice / level, drift=over, weights=weights)


def _share_to_twice(rule: Rule, drift: NDArray, weights: NDArray) -> _Scaled | None:
    """Scale a drifting share of positions to twice the limit, at most to all positions of a cluster.

    drift, weights: drifting and all positions of each cluster. None if even all of those that drift are too few.
    """
    drift, target = drift.clip(0), min(2 * _allowance(rule), 1.0) * weights.sum()
    drifting = drift > 1e-9
    if not 0 < target <= weights[drifting].sum():
        return None
    low, factor = 0.0, float((weights[drifting] / drift[drifting]).max())
    for _ in range(60):
        middle = (low + factor) / 2
        low, factor = (low, middle) if np.minimum(middle * drift, weights).sum() >= target else (middle, factor)
    return _Scaled(factor=factor, drift=np.minimum(factor * drift, weights), weights=weights)
