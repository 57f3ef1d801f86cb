"""What one slice of a rule says about one variant: numbers, both tests, and what forbids a proof."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import ceil, inf, isfinite

import numpy as np
from numpy.typing import ArrayLike, NDArray

from qualgate.formatting import counted
from qualgate.gate.comparisons.agreement import measure_parity, measure_stability, share_of_cases
from qualgate.gate.comparisons.arm_facts import measure_whole
from qualgate.gate.comparisons.cost import Terms, heard_in_each, late, ledger
from qualgate.gate.comparisons.result import Measured, unmeasured
from qualgate.gate.comparisons.result import comparison as _comparison
from qualgate.gate.evidence.checks import MOST_TRUNCATED, About, Pair
from qualgate.gate.evidence.time_groups import timed_together
from qualgate.gate.rules import Slice
from qualgate.metrics import MARGINS_OF_BASELINE, METRICS
from qualgate.records import Slo
from qualgate.stats.cost_ratio import METHOD_RATIO, accepted_cost_ratio, cost_per_accepted
from qualgate.stats.intervals import (
    Bounds,
    binomial_lower,
    clustered_percentile,
    clustered_share,
    independent_trials,
    nonnegative_ratio,
)
from qualgate.stats.kl_error_bound import kl_error
from qualgate.stats.latency import METHOD_SUMS, cases_needed, clusters_needed, latency_ratio
from qualgate.stats.paired.compare import MIN_CLUSTERS, compare_clustered_pairs, compare_pairs
from qualgate.stats.percentiles import METHOD as METHOD_PERCENTILES
from qualgate.stats.percentiles import groups_needed
from qualgate.stats.power import pairs_needed
from qualgate.stats.relative import METHOD_RELATIVE, compare_relative
from qualgate.stats.unseen_clusters import least_provable, trials_needed

NOTHING_KNOWN = About()
SENSITIVITY_ALPHA = 0.05  # of the baseline's own lower bound, whatever the policy's alpha
LEAST_BASELINE_RATE = 0.20

# What kind of case nobody drew is allowed for (see `nonnegative_ratio`). A KL has no ceiling, and a variant that breaks
# down on one kind of prompt does so by far: 20 times the limit is 1 nat a token where 0.05 are allowed. Simulated at
# the limit with 20 to 2,800 cases (lognormal with sigma 1.5 and 2, Pareto with index 1.5 and 2, nothing but one case in
# 20), at most 4.7 % are proven; with both factors 1 it was up to 36 %. What breaks down more rarely and further than
# this can still be missed: one case in 100 at 100 times the limit, by 60 cases, in 56 % of draws.
UNSEEN_KL = {"of_limit": 20.0, "of_largest": 3.0}


def measure(
    part: Slice,
    pairs: dict[str, tuple[Pair, ...]],
    truncated: dict[str, float],
    alpha: float,
    terms: Terms | None = None,
    about: About = NOTHING_KNOWN,
) -> Measured:
    """The numbers of one slice. truncated: evalset → share of the baseline's answers that were cut off, if too many.
    terms: by which a rule on cost accepts and prices answers, and one on goodput calls them late. about: of both arms.
    """
    mine = pairs_of(part, pairs)
    if part.obstacle:
        return unmeasured(part, len(mine), part.obstacle)
    empty = [name for name in part.evalsets if not pairs.get(name)]
    if empty:
        return unmeasured(part, len(mine), f"no pair of {empty[0]} was compared")
    kind = METRICS[part.rule.metric].kind
    if kind == "arm":
        return measure_whole(part, mine, about)
    if not mine:  # of a label whose few cases are all in quarantine
        return unmeasured(part, 0, "none of its cases counts")
    for name in part.evalsets:
        if name in truncated:
            cut = f"the baseline was cut off on {truncated[name]:.1%} of {name} (at most {MOST_TRUNCATED:.0%})"
            return unmeasured(part, len(mine), f"{cut}: raise max_new_tokens")
    if kind == "cost":
        return _measure_cost(part, mine, alpha, terms)
    if kind == "service":
        return _measure_goodput(part, mine, alpha, terms.slo if terms else Slo())
    if kind == "stability":
        return measure_stability(part, mine, about.rerun, alpha)
    by_kind = {"quality": _measure_quality, "drift": _measure_drift, "latency": _measure_latency}
    return by_kind[kind](part, mine, alpha)


def pairs_of(part: Slice, pairs: dict[str, tuple[Pair, ...]]) -> list[Pair]:
    """Those that the slice is about."""
    return [
        pair for name in part.evalsets for pair in pairs.get(name, ()) if part.holds(name, pair.baseline.key.case_id)
    ]


def _measure_quality(part: Slice, pairs: list[Pair], alpha: float) -> Measured:
    metric, n = part.rule.metric, len(pairs)
    unscored = sum(metric not in pair.baseline.values or metric not in pair.variant.values for pair in pairs)
    if unscored:  # stored before a rule asked for it
        return unmeasured(
            part, n, f"{unscored} of {counted(n, 'case')} were not scored by it: run again with this policy"
        )
    values = [(pair.baseline.values[metric], pair.variant.values[metric]) for pair in pairs]
    silent = sum(before is None or after is None for before, after in values)
    if silent:
        return unmeasured(part, n, f"the scorer could not say for {silent} of {counted(n, 'case')}")
    baseline, variant = np.array(values, float).T
    clusters, count = _clusters(pairs)
    if part.rule.repeats != "mean":
        baseline, variant, clusters = collapse(part.rule.repeats, pairs, baseline, variant, clusters)
        n, count = len(baseline), len(np.unique(clusters))
    if part.rule.max_relative_drop is not None:
        return _measure_relative(part, baseline, variant, clusters, alpha)
    margin = part.rule.max_drop or 0.0
    whole = bool(np.isin(baseline, (0, 1)).all() and np.isin(variant, (0, 1)).all())
    if whole and count == n:
        lost, gained = int(((baseline == 1) & (variant == 0)).sum()), int(((baseline == 0) & (variant == 1)).sum())
        result = compare_pairs(lost, gained, n, margin, alpha)
    elif count < MIN_CLUSTERS:
        return unmeasured(
            part,
            n,
            f"{counted(count, 'cluster of cases is', 'clusters of cases are')} too few to compare "
            f"({MIN_CLUSTERS} needed)",
        )
    else:
        result = compare_clustered_pairs(baseline, variant, clusters, margin, alpha)
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
        obstacle=too_weak(part, baseline, clusters) or (too_few(part, clusters, alpha) if count < n else ""),
    )


def too_few(part: Slice, clusters: NDArray, alpha: float) -> str:
    """Why cases of so few clusters cannot prove the margin, however alike the arms, in words; empty when they can.

    A cluster may fail as a whole, and that many may all be drawn without one that does (see `stats.unseen`).
    """
    margin, independent = part.rule.max_drop or 0.0, independent_trials(np.ones(len(clusters)), clusters, alpha)
    least = least_provable(independent, alpha)
    if margin >= least:
        return ""
    return (
        f"{part.head}: {counted(int(independent), 'independent case')} can prove no loss under "
        f"{ceil(1000 * least) / 10:g} points; {trials_needed(margin, alpha):,} would be needed at least"
    )


def too_weak(part: Slice, baseline: NDArray, clusters: NDArray, alpha: float = SENSITIVITY_ALPHA) -> str:
    """Why a baseline that is right so rarely cannot lose the margin, in words; empty when it surely is often enough.

    baseline: its value on each case. alpha: the chance that a baseline below the limit passes.
    """
    n, margin = len(baseline), part.rule.max_drop or 0.0
    if np.isin(baseline, (0, 1)).all() and len(np.unique(clusters)) == n:
        right = binomial_lower(int(baseline.sum()), n, alpha)
    else:
        right = clustered_share(baseline, np.ones(n), clusters, 0.0, alpha).lower
    enough = max(LEAST_BASELINE_RATE, MARGINS_OF_BASELINE * margin)
    if right >= enough:
        return ""
    return (
        f"{part.head}: the baseline is right on {baseline.mean():.1%} of {counted(n, 'case')} "
        f"({100 * (1 - alpha):.4g} % bound: at least {right:.1%}); "
        f"under {enough:.0%} a {100 * margin:g}-point loss would not show"
    )


def collapse(
    repeats: str, pairs: list[Pair], baseline: np.ndarray, variant: np.ndarray, clusters: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """One pair a case: right when any of its answers is (pass@k) or when all are (pass^k), k the repeats there are."""
    questions = [(pair.baseline.key.evalset, pair.baseline.key.case_id) for pair in pairs]
    numbers = {question: number for number, question in enumerate(dict.fromkeys(questions))}
    at = np.array([numbers[question] for question in questions])
    start, over = (0.0, np.maximum) if repeats == "any" else (1.0, np.minimum)
    sides = []
    for values in (baseline, variant):
        side = np.full(len(numbers), start)
        over.at(side, at, values)
        sides.append(side)
    labels = np.zeros(len(numbers), int)
    labels[at] = clusters
    return sides[0], sides[1], labels


def _measure_relative(
    part: Slice, baseline: np.ndarray, variant: np.ndarray, clusters: np.ndarray, alpha: float
) -> Measured:
    """`difference`, `lower` and `upper` are shares of the baseline's rate."""
    n, count, limit = len(baseline), len(np.unique(clusters)), part.rule.max_relative_drop or 0.0
    binary = bool(np.isin(baseline, (0, 1)).all() and np.isin(variant, (0, 1)).all())
    if not (binary and count == n) and count < MIN_CLUSTERS:
        return unmeasured(
            part,
            n,
            f"{counted(count, 'cluster of cases is', 'clusters of cases are')} too few to compare "
            f"({MIN_CLUSTERS} needed)",
        )
    result = compare_relative(baseline, variant, clusters, limit, alpha)
    right = clustered_share(baseline, np.ones(n), clusters, 0.0, SENSITIVITY_ALPHA).lower
    obstacle = ""
    if right < LEAST_BASELINE_RATE:
        obstacle = (
            f"{part.head}: the baseline is right on {baseline.mean():.1%} of {counted(n, 'case')} "
            "(95 % bound: at least "
            f"{right:.1%}); under {LEAST_BASELINE_RATE:.0%} a loss of {limit:.1%} of it would not show"
        )
    return Measured(
        slice=part,
        comparison=_comparison(
            part,
            n=n,
            clusters=None if count == n else count,
            baseline=float(baseline.mean()),
            variant=float(variant.mean()),
            difference=result.change,
            lower=result.lower,
            upper=result.upper,
            lost=int(np.count_nonzero(variant < baseline)),
            gained=int(np.count_nonzero(variant > baseline)),
            p_broken=result.p_beyond,
            method=METHOD_RELATIVE,
        ),
        p_within=result.p_within,
        obstacle=obstacle,
    )


def _observed(value: float, limit: float, clusters: int) -> Bounds:
    kept, broken = (0.0, 1.0) if value <= limit else (1.0, 0.0)
    return Bounds(estimate=value, lower=value, upper=value, p_below=kept, p_above=broken, clusters=clusters)


def _certified(pairs: list[Pair], bounds_of: Callable[[NDArray[np.float64]], Bounds]) -> Bounds:
    """Bounds from every position's KL; where that is known to within an error, whatever the truth inside it is."""
    kl = np.concatenate([pair.variant.kl for pair in pairs])
    error = kl_error(kl, np.repeat([pair.variant.kl_eta for pair in pairs], [len(pair.variant.kl) for pair in pairs]))
    found = bounds_of(kl)
    if not error.any():
        return found
    least, most = bounds_of(np.maximum(kl - error, 0.0)), bounds_of(kl + error)
    return replace(found, lower=least.lower, upper=most.upper, p_below=most.p_below, p_above=least.p_above)


def longest(pairs: list[Pair]) -> float | None:
    """How long an answer may become, in times of the baseline's mean answer; None where that is not known.

    An answer that never ends takes all of its case's `max_new_tokens`, which may be a hundred times the mean. The
    largest of them counts: which cases would be the ones is not known where none was drawn.
    """
    budgets = [pair.budget for pair in pairs if pair.budget is not None]
    said = sum(pair.baseline.tokens or 0 for pair in pairs)
    if len(budgets) < len(pairs) or not said:
        return None
    return max(*budgets, *(pair.variant.tokens or 0 for pair in pairs)) * len(pairs) / said


def length_bounds(
    after: ArrayLike, before: ArrayLike, clusters: ArrayLike, limit: float, alpha: float, most: float | None
) -> Bounds:
    """Σ after / Σ before, tokens of the same cases in the same order. most: `longest`; with None no upper bound."""
    of_limit = (most or 0.0) / limit if limit > 0 else 1.0
    found = nonnegative_ratio(after, before, clusters, limit, alpha, of_limit=of_limit, of_largest=0.0)
    return found if most is not None and limit > 0 else replace(found, upper=inf, p_below=1.0)


def _measure_drift(part: Slice, pairs: list[Pair], alpha: float) -> Measured:
    """Drift is a property of the variant alone: `variant`, `lower` and `upper` are the value and its bounds."""
    rule, n, at_least, obstacle = part.rule, len(pairs), 0, ""
    limit = rule.max if rule.max is not None else rule.min if rule.min is not None else 0.0
    clusters, count = _clusters(pairs)
    if rule.metric.startswith("parity."):
        return measure_parity(part, pairs, alpha)
    if rule.metric == "drift.length_ratio":
        before, after = (
            [u.tokens for u in units] for units in zip(*((p.baseline, p.variant) for p in pairs), strict=True)
        )
        if None in before or None in after:
            return unmeasured(part, n, "the tokens of some answers were not counted")
        if not any(before):
            return unmeasured(part, n, "the baseline's answers have no token")
        most = longest(pairs)
        bounds, method = length_bounds(after, before, clusters, limit, alpha, most), "length_ratio_clustered_t/4"
        if most is None:
            unknown = sum(pair.budget is None for pair in pairs)
            obstacle = (
                f"{part.head}: how long an answer may become (`max_new_tokens`) is not known for {unknown} of "
                f"{counted(n, 'case')}, so one that never ends could have been missed: judge a run, or keep the "
                "evalset where the gate file names it"
            )
    else:
        silent = sum(not pair.variant.kl or pair.variant.top1_agreement is None for pair in pairs)
        if silent:
            return unmeasured(part, n, f"no drift was recorded for {silent} of {counted(n, 'case')}")
        positions = np.array([len(pair.variant.kl) for pair in pairs])
        match rule.metric:
            case "drift.top1_agreement":
                agreed = positions * np.array([pair.variant.top1_agreement for pair in pairs], float)
                bounds, method = clustered_share(agreed, positions, clusters, limit, alpha), "top1_binomial/1"
            case "drift.kl_mean":
                bounds = _certified(
                    pairs,
                    lambda kl: nonnegative_ratio(
                        np.add.reduceat(kl, np.cumsum(positions) - positions), positions, clusters, limit, alpha,
                        **UNSEEN_KL,
                    ),
                )  # fmt: skip
                method = "kl_mean_clustered_t/3"
                at_least = clusters_needed(100 - 100 / UNSEEN_KL["of_limit"], alpha)
            case "drift.kl_p99":
                of_each = np.repeat(clusters, positions)
                bounds = _certified(pairs, lambda kl: clustered_percentile(kl, of_each, 99, limit, alpha))
                method = "kl_percentile_binomial/1"
            case _:  # drift.kl_max: a fact about these answers; nothing bounds the largest KL of answers not seen
                bounds = _certified(pairs, lambda kl: _observed(float(kl.max()), limit, count))
                method = "kl_max_observed/1"
    p_within, p_broken = bounds.p_below, bounds.p_above
    if rule.min is not None:
        p_within, p_broken = p_broken, p_within
    if count < MIN_CLUSTERS and method != "kl_max_observed/1":
        return unmeasured(
            part, n, f"{counted(count, 'independent case is', 'independent cases are')} too few ({MIN_CLUSTERS} needed)"
        )
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
            needed=at_least if count < at_least and min(p_within, p_broken) > alpha else None,
            method=method,
        ),
        p_within=p_within,
        obstacle=obstacle,
    )


def _measure_latency(part: Slice, pairs: list[Pair], alpha: float) -> Measured:
    """`baseline` and `variant` are seconds, `lower` and `upper` bounds of their ratio."""
    rule, n = part.rule, len(pairs)
    timed = [(p.baseline.values.get(rule.metric), p.variant.values.get(rule.metric)) for p in pairs]
    short = [rule.metric == "latency.tpot" and {0, 1} & {p.baseline.tokens, p.variant.tokens} for p in pairs]
    untimed = sum(None in pair and not excused for pair, excused in zip(timed, short, strict=True))
    if untimed:
        return unmeasured(part, n, f"no time was recorded for {untimed} of {counted(n, 'case')}")
    told = [index for index, pair in enumerate(timed) if None not in pair]
    known = np.array([timed[index] for index in told], float).reshape(-1, 2)
    timed_pairs = [pairs[index] for index in told]
    cases, count = _clusters(timed_pairs)
    needed = MIN_CLUSTERS if rule.percentile is None else max(MIN_CLUSTERS, groups_needed(rule.percentile, alpha))
    if count < needed:
        return unmeasured(part, n, f"{count} independent timed cases are too few ({needed} needed)", needed)
    if known[:, 0].sum() <= 0:
        return unmeasured(part, n, "the baseline's times are all zero")
    together, shared = _timed_together(timed_pairs)
    if shared:
        return unmeasured(part, n, shared)
    limit, groups = rule.max_ratio or 0.0, len(np.unique(together))
    if groups < needed:
        return unmeasured(
            part,
            n,
            f"{counted(len(known), 'timed case')} ran in {counted(groups, 'group')} of batches that share no case, and "
            f"p{rule.percentile:g} needs {needed}: more cases, or smaller batches",
            ceil(needed * len(known) / groups),
        )
    bounds = latency_ratio(known[:, 0], known[:, 1], together, rule.percentile, limit, alpha, cases)
    wanted = cases_needed(limit, bounds.estimate, alpha) if rule.percentile is None else None
    open_ = wanted is not None and count < wanted and min(bounds.p_below, bounds.p_above) > alpha
    level = known.mean(axis=0) if rule.percentile is None else np.percentile(known, rule.percentile, axis=0)
    return Measured(
        slice=part,
        comparison=_comparison(
            part,
            n=len(known),
            clusters=None if groups == len(known) else groups,
            needed=wanted if open_ else None,
            baseline=float(level[0]),
            variant=float(level[1]),
            lower=bounds.lower,
            upper=bounds.upper if isfinite(bounds.upper) else None,
            p_broken=bounds.p_above,
            method=METHOD_SUMS if rule.percentile is None else METHOD_PERCENTILES,
        ),
        p_within=bounds.p_below,
    )


def _measure_goodput(part: Slice, pairs: list[Pair], alpha: float, slo: Slo) -> Measured:
    """Each answer is in time or late; by `max_drop` compared as quality is, by `min` the variant's own share."""
    n = len(pairs)
    if slo == Slo():
        return unmeasured(part, n, "no `slo` says how slow an answer may be")
    missed = [(late(pair.baseline, slo), late(pair.variant, slo)) for pair in pairs]
    asked = missed if part.rule.max_drop is not None else [(False, variant) for _, variant in missed]
    untimed = sum(None in pair for pair in asked)
    if untimed:
        return unmeasured(part, n, f"no time was recorded for {untimed} of {counted(n, 'case')}")
    together, shared = _timed_together(pairs)
    if shared:
        return unmeasured(part, n, shared)
    if part.rule.max_drop is not None:
        timed = zip(pairs, missed, together.tolist(), strict=True)
        return _measure_quality(
            part, [replace(_in_time(pair, *each), cluster=group) for pair, each, group in timed], alpha
        )
    return share_of_cases(part, np.array([not variant for _, variant in missed], float), together, alpha)


def _in_time(pair: Pair, baseline: bool | None, variant: bool | None) -> Pair:
    return replace(
        pair,
        baseline=replace(pair.baseline, values={"goodput": float(not baseline)}),
        variant=replace(pair.variant, values={"goodput": float(not variant)}),
    )


def _measure_cost(part: Slice, pairs: list[Pair], alpha: float, terms: Terms | None) -> Measured:
    """`baseline` and `variant` are costs per accepted answer (None: nothing was accepted), the bounds their ratio's."""
    if terms is None:
        return unmeasured(part, len(pairs), "nothing says what an answer costs")
    before = ledger("baseline", [pair.baseline for pair in pairs], terms)
    after = ledger("variant", [pair.variant for pair in pairs], terms)
    if missing := (*before.unavailable, *after.unavailable):
        return unmeasured(part, len(pairs), f"unavailable: {missing[0]}")
    heard, uneven = heard_in_each(before, after)
    if uneven:
        return unmeasured(part, len(pairs), f"unavailable: {uneven}")
    among = "" if heard.all() else f" among those that users were heard on in both arms, of {len(pairs)}"
    pairs = [pair for pair, known in zip(pairs, heard, strict=True) if known]
    clusters, count = _clusters(pairs)
    if count < MIN_CLUSTERS:
        return unmeasured(
            part,
            len(pairs),
            f"{counted(count, 'independent case is', 'independent cases are')} too few ({MIN_CLUSTERS} needed){among}",
        )
    together = clusters
    if terms.timed:
        together, shared = _timed_together(pairs)
        if shared:
            return unmeasured(part, len(pairs), shared)
    groups = len(np.unique(together))
    per = [cost_per_accepted(book.costs[heard], book.accepted[heard]) for book in (before, after)]
    if not isfinite(per[0]) or per[0] <= 0:
        return unmeasured(part, len(pairs), "the baseline has no accepted answer, or none that costs anything")
    bounds = accepted_cost_ratio(
        (before.costs[heard], before.accepted[heard]),
        (after.costs[heard], after.accepted[heard]),
        together,
        part.rule.max_ratio or 0.0,
        alpha,
        clusters,
    )
    return Measured(
        slice=part,
        comparison=_comparison(
            part,
            n=len(pairs),
            clusters=None if groups == len(pairs) else groups,
            baseline=per[0],
            variant=per[1] if isfinite(per[1]) else None,
            lower=bounds.lower if isfinite(bounds.lower) else None,
            upper=bounds.upper if isfinite(bounds.upper) else None,
            p_broken=bounds.p_above,
            method=METHOD_RATIO,
        ),
        p_within=bounds.p_below,
    )


def _clusters(pairs: list[Pair]) -> tuple[np.ndarray, int]:
    """The cluster number of each pair, and how many clusters there are."""
    labels = np.array([pair.cluster for pair in pairs])
    return labels, len(np.unique(labels))


def _timed_together(pairs: list[Pair]) -> tuple[np.ndarray, str]:
    labels, _ = _clusters(pairs)
    return timed_together(labels, [pair.baseline for pair in pairs], [pair.variant for pair in pairs])
