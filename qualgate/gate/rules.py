"""Policy rules, spread over slices, and what each says about one variant.

A rule is *proven* when its bound excludes the limit at alpha, *broken* when a breach of the limit is proven after
Holm's correction over the rules of its tier, otherwise *undecided*.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import isfinite

import numpy as np

from qualgate.errors import UsageError
from qualgate.gate.evidence import MOST_TRUNCATED, Pair
from qualgate.metrics import METRICS
from qualgate.records import Comparison, Policy, Rule
from qualgate.stats.intervals import Bounds, binomial_lower, clustered_percentile, clustered_ratio
from qualgate.stats.latency import METHOD_PERCENTILES, METHOD_SUMS, latency_ratio
from qualgate.stats.paired import MIN_CLUSTERS, compare_clustered_pairs, compare_pairs
from qualgate.stats.power import pairs_needed

SENSITIVITY_ALPHA = 0.05  # of the baseline's own lower bound, whatever the policy's alpha
LEAST_BASELINE_RATE = 0.20
MARGINS_OF_BASELINE = 5  # the baseline must be right on at least so many times what may be lost


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """A rule and the evalsets it is held against together."""

    rule: Rule
    name: str  # "pooled" or the evalset's name
    evalsets: tuple[str, ...]

    @property
    def head(self) -> str:
        at = f" p{self.rule.percentile:g}" if self.rule.percentile is not None else ""
        return f"{self.rule.metric}{at} [{self.name}]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A comparison before its status: the numbers, both tests, and what forbids proving it."""

    slice: Slice
    comparison: Comparison
    p_within: float = 1.0  # of "the limit is breached"; small = proven to be kept
    obstacle: str = ""  # a reason why this slice can prove nothing, in words for the user


# ------------------------------------------------------------------------------------------------ policy


def check_policy(policy: Policy, metrics: dict[str, tuple[str, ...]]) -> tuple[Slice, ...]:
    """The policy's rules spread over the evalsets (evalset → metrics), in rule order, then by evalset name.

    UsageError: no critical quality rule, a metric that is unknown or that no named set carries, an unfit bound.
    """
    if not 0 < policy.alpha < 0.5:
        raise UsageError(f"alpha is {policy.alpha:g}; it must be over 0 and below 0.5, for example 0.05.")
    slices = tuple(part for rule in policy.rules for part in _spread(rule, metrics))
    if not any(rule.tier == "critical" and METRICS[rule.metric].kind == "quality" for rule in policy.rules):
        raise UsageError(
            "The policy has no critical quality rule, so nothing could earn an approval. "
            "Add one, for example: {metric: exact_match, max_drop: 0.02}"
        )
    return slices


def _spread(rule: Rule, metrics: dict[str, tuple[str, ...]]) -> tuple[Slice, ...]:
    at = f" (line {rule.line})" if rule.line else ""
    metric = METRICS.get(rule.metric)
    if metric is None:
        raise UsageError(f"No metric is called {rule.metric!r}{at}. Known: {', '.join(sorted(METRICS))}")
    _check_bound(rule, at)
    if rule.evalset is not None and rule.evalset not in metrics:
        raise UsageError(f"Rule {rule.id}{at} names an evalset that is not in the run: {', '.join(sorted(metrics))}")
    named = (rule.evalset,) if rule.evalset is not None else tuple(sorted(metrics))
    carrying = tuple(name for name in named if metric.kind != "quality" or rule.metric in metrics[name])
    if not carrying:
        carried = "; ".join(f"{name}: {', '.join(metrics[name]) or 'none'}" for name in named)
        raise UsageError(f"Rule {rule.id}{at}: no evalset carries {rule.metric}. The sets' metrics are {carried}")
    if rule.evalset is not None or rule.scope == "evalset":
        return tuple(Slice(rule=rule, name=name, evalsets=(name,)) for name in carrying)
    return (Slice(rule=rule, name="pooled", evalsets=carrying),)


def _check_bound(rule: Rule, at: str) -> None:
    metric = METRICS[rule.metric]
    given = {
        name: value for name in ("max_drop", "max", "min", "max_ratio") if (value := getattr(rule, name)) is not None
    }
    if len(given) != 1 or not given.keys() <= set(metric.bounds):
        found = ", ".join(given) or "none"
        raise UsageError(f"A rule on {rule.metric}{at} sets exactly {' or '.join(metric.bounds)}; found: {found}")
    (name, value), *_ = given.items()
    if not isfinite(value) or value < 0 or (name == "max_drop" and not 0 < value < 1) or (name == "min" and value > 1):
        raise UsageError(f"{name} of {rule.metric}{at} is {value:g}, out of range")
    if rule.percentile is not None and (metric.kind != "latency" or not 0 < rule.percentile < 100):
        raise UsageError(
            f"percentile {rule.percentile:g} of {rule.metric}{at}: only latency rules, over 0 and below 100"
        )


# ------------------------------------------------------------------------------------------- measurement


def measure(part: Slice, pairs: dict[str, tuple[Pair, ...]], truncated: dict[str, float], alpha: float) -> Measured:
    """The numbers of one slice. truncated: evalset → share of the baseline's answers that were cut off, if too many."""
    mine = [pair for name in part.evalsets for pair in pairs.get(name, ())]
    if not mine:
        return unmeasured(part, 0, "no pair was compared")
    for name in part.evalsets:
        if name in truncated:
            cut = f"the baseline was cut off on {truncated[name]:.1%} of {name} (at most {MOST_TRUNCATED:.0%})"
            return unmeasured(part, len(mine), f"{cut}: raise max_new_tokens")
    kind = METRICS[part.rule.metric].kind
    by_kind = {"quality": _measure_quality, "drift": _measure_drift, "latency": _measure_latency}
    return by_kind[kind](part, mine, alpha)


def unmeasured(part: Slice, n: int, why: str) -> Measured:
    """A slice about which nothing can be said."""
    return Measured(slice=part, comparison=_comparison(part, n=n), obstacle=f"{part.head}: {why}")


def _comparison(part: Slice, n: int, **numbers) -> Comparison:
    rule = part.rule
    return Comparison(
        rule=rule.id, metric=rule.metric, slice=part.name, tier=rule.tier, status="undecided", n=n, **numbers
    )


def _measure_quality(part: Slice, pairs: list[Pair], alpha: float) -> Measured:
    metric, margin, n = part.rule.metric, part.rule.max_drop or 0.0, len(pairs)
    values = [(pair.baseline.values[metric], pair.variant.values[metric]) for pair in pairs]
    silent = sum(before is None or after is None for before, after in values)
    if silent:
        return unmeasured(part, n, f"the scorer could not say for {silent} of {n} cases")
    baseline, variant = np.array(values, float).T
    clusters, count = _clusters(pairs)
    whole = bool(np.isin(baseline, (0, 1)).all() and np.isin(variant, (0, 1)).all())
    if whole and count == n:
        lost, gained = int(((baseline == 1) & (variant == 0)).sum()), int(((baseline == 0) & (variant == 1)).sum())
        result = compare_pairs(lost, gained, n, margin, alpha)
        right = binomial_lower(int(baseline.sum()), n, SENSITIVITY_ALPHA)
    elif count < MIN_CLUSTERS:
        return unmeasured(part, n, f"{count} clusters of cases are too few to compare ({MIN_CLUSTERS} needed)")
    else:
        result = compare_clustered_pairs(baseline, variant, clusters, margin, alpha)
        right = clustered_ratio(baseline, np.ones(n), clusters, 0.0, SENSITIVITY_ALPHA).lower
    enough = max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin)
    obstacle = ""
    if right < enough:
        obstacle = (
            f"{part.head}: the baseline is right on {baseline.mean():.1%} of {n} cases "
            f"(95 % bound: at least {right:.1%}); under {enough:.0%} a {100 * margin:g}-point loss would not show"
        )
    decided = min(result.p_within, result.p_beyond) <= alpha
    return Measured(
        slice=part,
        comparison=_comparison(
            part,
            n=n,
            clusters=None if count == n else count,
            baseline=float(baseline.mean()),
            variant=float(variant.mean()),
            difference=result.difference,
            lower=result.lower,
            upper=result.upper,
            lost=result.lost,
            gained=result.gained,
            p_broken=result.p_beyond,
            needed=None if decided or count < n else pairs_needed(result.lost, result.gained, n, margin, alpha),
            method=result.method,
        ),
        p_within=result.p_within,
        obstacle=obstacle,
    )


def _measure_drift(part: Slice, pairs: list[Pair], alpha: float) -> Measured:
    """Drift is a property of the variant alone: `variant`, `lower` and `upper` are the value and its bounds."""
    rule, n = part.rule, len(pairs)
    limit = rule.max if rule.max is not None else rule.min if rule.min is not None else 0.0
    clusters, count = _clusters(pairs)
    if rule.metric == "drift.length_ratio":
        before, after = (
            [u.tokens for u in units] for units in zip(*((p.baseline, p.variant) for p in pairs), strict=True)
        )
        if not any(before):
            return unmeasured(part, n, "the baseline's answers have no token")
        bounds, method = clustered_ratio(after, before, clusters, limit, alpha), "length_ratio_clustered_t/1"
    else:
        silent = sum(not pair.variant.kl or pair.variant.top1_agreement is None for pair in pairs)
        if silent:
            return unmeasured(part, n, f"no drift was recorded for {silent} of {n} cases")
        positions = np.array([len(pair.variant.kl) for pair in pairs])
        match rule.metric:
            case "drift.top1_agreement":
                agreed = positions * np.array([pair.variant.top1_agreement for pair in pairs], float)
                bounds, method = clustered_ratio(agreed, positions, clusters, limit, alpha), "top1_clustered_t/1"
            case "drift.kl_mean":
                total = [sum(pair.variant.kl) for pair in pairs]
                bounds, method = clustered_ratio(total, positions, clusters, limit, alpha), "kl_mean_clustered_t/1"
            case "drift.kl_p99":
                every = np.concatenate([pair.variant.kl for pair in pairs])
                bounds = clustered_percentile(every, np.repeat(clusters, positions), 99, limit, alpha)
                method = "kl_percentile_woodruff/1"
            case _:  # drift.kl_max: a fact about these answers; nothing bounds the largest KL of answers not seen
                largest = max(max(pair.variant.kl) for pair in pairs)
                kept, broken = (0.0, 1.0) if largest <= limit else (1.0, 0.0)
                bounds = Bounds(
                    estimate=largest, lower=largest, upper=largest, p_below=kept, p_above=broken, clusters=count
                )
                method = "kl_max_observed/1"
    p_within, p_broken = bounds.p_below, bounds.p_above
    if rule.min is not None:
        p_within, p_broken = p_broken, p_within
    if count < MIN_CLUSTERS and method != "kl_max_observed/1":
        return unmeasured(part, n, f"{count} independent cases are too few ({MIN_CLUSTERS} needed)")
    return Measured(
        slice=part,
        comparison=_comparison(
            part,
            n=n,
            clusters=None if count == n else count,
            variant=bounds.estimate,
            lower=bounds.lower if isfinite(bounds.lower) else None,
            upper=bounds.upper if isfinite(bounds.upper) else None,
            p_broken=p_broken,
            method=method,
        ),
        p_within=p_within,
    )


def _measure_latency(part: Slice, pairs: list[Pair], alpha: float) -> Measured:
    """`baseline` and `variant` are seconds, `lower` and `upper` bounds of their ratio."""
    rule, n = part.rule, len(pairs)
    timed = [(p.baseline.values.get(rule.metric), p.variant.values.get(rule.metric)) for p in pairs]
    short = [rule.metric == "latency.tpot" and min(p.baseline.tokens, p.variant.tokens) < 2 for p in pairs]
    untimed = sum(None in pair and not excused for pair, excused in zip(timed, short, strict=True))
    if untimed:
        return unmeasured(part, n, f"no time was recorded for {untimed} of {n} cases")
    known = np.array([pair for pair in timed if None not in pair], float).reshape(-1, 2)
    if len(known) < MIN_CLUSTERS or known[:, 0].sum() <= 0:
        return unmeasured(part, n, f"{len(known)} timed cases are too few ({MIN_CLUSTERS} needed)")
    bounds = latency_ratio(known[:, 0], known[:, 1], rule.percentile, rule.max_ratio or 0.0, alpha)
    level = known.mean(axis=0) if rule.percentile is None else np.percentile(known, rule.percentile, axis=0)
    return Measured(
        slice=part,
        comparison=_comparison(
            part,
            n=len(known),
            baseline=float(level[0]),
            variant=float(level[1]),
            lower=bounds.lower,
            upper=bounds.upper if isfinite(bounds.upper) else None,
            p_broken=bounds.p_above,
            method=METHOD_SUMS if rule.percentile is None else METHOD_PERCENTILES,
        ),
        p_within=bounds.p_below,
    )


def _clusters(pairs: list[Pair]) -> tuple[np.ndarray, int]:
    """An integer label for each pair's cluster, and how many there are."""
    numbers: dict[tuple[str, str], int] = {}
    labels = np.array([numbers.setdefault(pair.cluster, len(numbers)) for pair in pairs])
    return labels, len(numbers)


# ------------------------------------------------------------------------------------------------ status


def settle(measured: Measured, adjusted_p_broken: float, alpha: float) -> Comparison:
    """Give a comparison its status and its reason.

    An obstacle forbids proving; a loss that is proven all the same is a fact and stays broken.
    """
    if adjusted_p_broken <= alpha:
        status = "broken"
    elif measured.p_within <= alpha and not measured.obstacle:
        status = "proven"
    else:
        status = "undecided"
    comparison = replace(measured.comparison, status=status)
    if status == "undecided" and measured.obstacle:
        return replace(comparison, reason=measured.obstacle)
    explain = {"quality": _explain_quality, "drift": _explain_drift, "latency": _explain_latency}
    reason = explain[METRICS[comparison.metric].kind](measured.slice, comparison, alpha)
    return replace(comparison, reason=reason)


def _explain_quality(part: Slice, c: Comparison, alpha: float) -> str:
    allowed = 100 * (part.rule.max_drop or 0.0)
    change, low, high = 100 * (c.difference or 0.0), 100 * (c.lower or 0.0), 100 * (c.upper or 0.0)
    moved = (
        f"fell {-change:.1f} points" if change < 0 else f"rose {change:.1f} points" if change > 0 else "is unchanged"
    )
    counts = f"{c.lost} lost, {c.gained} gained of {c.n}"
    level = f"{100 * (1 - alpha):g} % bound"
    if c.status == "broken":
        return f"{part.head} {moved} ({level}: at least {-high:.1f}; allowed {allowed:.1f}), {counts}"
    if c.status == "proven":
        bound = f"at most {-low:.1f} lost" if low < 0 else f"at least {low:.1f} gained"
        return f"{part.head} {moved} ({level}: {bound}; allowed {allowed:.1f}), {counts}"
    if (c.p_broken or 1.0) <= alpha:
        return f"{part.head} {moved}, {counts}: beyond {allowed:g} points alone, not after correction for several rules"
    more = f"; about {c.needed:,} would" if c.needed else ""
    claim = f"show a loss beyond {allowed:g} points" if -change > allowed else f"exclude a {allowed:g}-point loss"
    return f"{part.head}: {c.n} cases cannot {claim}{more} ({c.lost} lost, {c.gained} gained)"


def _explain_drift(part: Slice, c: Comparison, alpha: float) -> str:
    limit = f"at most {part.rule.max:g}" if part.rule.max is not None else f"at least {part.rule.min:g}"
    unit = {"nats": " nats"}.get(METRICS[c.metric].unit, "")
    return f"{part.head} is {c.variant:.4g}{unit} ({_between(c, alpha)}; allowed {limit}) over {c.n} cases{_verb(c)}"


def _explain_latency(part: Slice, c: Comparison, alpha: float) -> str:
    ratio = (c.variant or 0.0) / c.baseline if c.baseline else float("inf")
    return (
        f"{part.head} is {ratio:.3g} times the baseline's ({_between(c, alpha)}; "
        f"allowed {part.rule.max_ratio:g}) over {c.n} cases{_verb(c)}"
    )


def _between(c: Comparison, alpha: float) -> str:
    low, high = (f"{value:.4g}" if value is not None else "unknown" for value in (c.lower, c.upper))
    return f"{100 * (1 - alpha):g} % bounds {low} to {high}"


def _verb(c: Comparison) -> str:
    return {"proven": "", "broken": ": limit breached", "undecided": ": too near the limit to tell"}[c.status]
