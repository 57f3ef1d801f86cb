"""Summarise a variant's drift beside its verdict. The numbers rank and warn; only a rule decides."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.comparisons.lengths import having, tokens
from qualgate.gate.evidence.checks import Pair
from qualgate.records.metrics import THOUGHT
from qualgate.stats.kl_error_bound import kl_error


def summarise(pairs: Iterable[Pair]) -> dict[str, float | None]:
    """Pool drift over every position of every answer; {} when no pair carries drift.

    drift.kl_*: nats. drift.top1_agreement: share of positions. drift.length_ratio: sum of variant tokens / sum of
    baseline tokens, None without any. drift.identical: share of answers that never diverge.
    drift.first_divergence: median position of the first divergence among those that do, None when none does.
    drift.measured: share of the pairs with drift; absent where all have it.
    drift.kl_error: the mean KL is proven to be within this of the true one; absent where it is exact.
    If a pair's KL is known only as an interval, drift.kl_mean_least and drift.kl_mean_most replace drift.kl_mean, and
    so on; None where nothing bounds it.
    constraint.masked, constraint.masked_baseline: mean share of each model's own probability that the cases'
    constraints left out; absent where no case has one. More in the variant: the constraint hides what it lost.
    reasoning.tokens: sum of the tokens of the variant's thoughts / of the baseline's; absent where not all are counted.
    """
    pairs = list(pairs)
    beside = _mean_masked(pairs) | _thoughts(pairs)
    measured = [pair for pair in pairs if pair.variant.kl]
    if not measured:
        return beside
    kl = np.concatenate([pair.variant.kl for pair in measured])
    positions = np.array([len(pair.variant.kl) for pair in measured])
    agreement = np.array([pair.variant.top1_agreement or 0.0 for pair in measured])
    diverged = [pair.variant.first_divergence for pair in measured if pair.variant.first_divergence is not None]
    baseline_tokens = sum(pair.baseline.tokens or 0 for pair in measured)
    error = kl_error(kl, np.repeat([pair.variant.kl_eta for pair in measured], positions)).mean()
    return {
        **_kl_summary(measured, kl),
        **({"drift.kl_error": float(error)} if error else {}),
        **({"drift.measured": len(measured) / len(pairs)} if len(measured) < len(pairs) else {}),
        "drift.top1_agreement": float((agreement * positions).sum() / positions.sum()),
        "drift.length_ratio": sum(pair.variant.tokens or 0 for pair in measured) / baseline_tokens
        if baseline_tokens
        else None,
        "drift.identical": 1 - len(diverged) / len(measured),
        "drift.first_divergence": float(np.median(diverged)) if diverged else None,
        **beside,
    }


def _kl_summary(measured: Sequence[Pair], kl: NDArray) -> dict[str, float | None]:
    """Summarize the KL of all positions: mean, 99th percentile, largest.

    If any answer has upper bounds of its KL, each number is replaced by two, `_least` and `_most` (None: infinite).
    """
    summary = {"drift.kl_mean": kl.mean(), "drift.kl_p99": np.percentile(kl, 99), "drift.kl_max": kl.max()}
    if all(pair.variant.kl_upper is None for pair in measured):
        return {name: float(value) for name, value in summary.items()}
    upper = np.concatenate(
        [pair.variant.kl if (kl_upper := pair.variant.kl_upper) is None else kl_upper for pair in measured]
    )
    bounded = bool(np.isfinite(upper).all())
    upper_values = (upper.mean(), np.percentile(upper, 99), upper.max()) if bounded else (None, None, None)
    intervals: dict[str, float | None] = {}
    for (name, lower_value), upper_value in zip(summary.items(), upper_values, strict=True):
        intervals |= {
            f"{name}_least": float(lower_value),
            f"{name}_most": None if upper_value is None else float(upper_value),
        }
    return intervals


def _thoughts(pairs: Sequence[Pair]) -> dict[str, float | None]:
    counted = [[tokens(THOUGHT, pair.baseline), tokens(THOUGHT, pair.variant)] for pair in having(THOUGHT, pairs)]
    if not counted or any(None in pair for pair in counted):
        return {}
    before, after = np.array(counted, float).sum(axis=0)
    return {THOUGHT: float(after / before)} if before else {}


def _mean_masked(pairs: Iterable[Pair]) -> dict[str, float | None]:
    """Return the mean share of masked tokens of both arms, over the pairs that recorded it; {} if there are none."""
    shares = [
        (pair.variant.masked, pair.baseline.masked)
        for pair in pairs
        if pair.variant.masked is not None and pair.baseline.masked is not None
    ]
    if not shares:
        return {}
    variant_shares, baseline_shares = zip(*shares, strict=True)
    return {
        "constraint.masked": float(np.mean(variant_shares)),
        "constraint.masked_baseline": float(np.mean(baseline_shares)),
    }
