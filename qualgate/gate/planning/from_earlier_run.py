"""How surely a rule on what is measured would decide: time, cost, memory, drift, goodput, parity, stability.

How much times, costs and divergences vary from case to case is no assumption but what an earlier run of the gate file
measured. Without one, only what is sure is told: an identical variant neither drifts nor answers otherwise.

- **Ratios** of sums (time, cost). The log of a ratio is taken as normal; its standard error is that of the gate's own
  bounds in the earlier run, narrowed by the root of the clusters. Of the variants the one most like the baseline
  counts, the baseline against itself before all. A truth of 1 is approved, one of twice the allowance (1 + 2 (r − 1))
  blocked.
- **Savings**, a ratio below 1: nothing identical saves. Approved is what saves twice as much (r²), blocked what saves
  nothing.
- **Ratios of percentiles** (time). What ran together in that arm is drawn again, the variant's times scaled to the
  truth asked about, and judged by the gate's own test.
- **Shares of cases** (goodput, the same answers again, parity): the gate's test takes a cluster for one trial, so the
  chances are binomial.
- **Sums over positions** (drift): clusters of the earlier run are drawn again, their drift scaled to twice the limit,
  and judged by the gate's own test of each.
- **Counted facts** (bytes, coverage): no chance enters.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import floor, inf, log, prod, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, ndtr, ndtri

from qualgate.gate.comparisons.acceptance import Terms, terms_of
from qualgate.gate.comparisons.agreement import common_tokens
from qualgate.gate.comparisons.by_metric import measure
from qualgate.gate.comparisons.drift import UNSEEN_KL, length_bounds, longest
from qualgate.gate.comparisons.pairs import pairs_of
from qualgate.gate.comparisons.result import Measured
from qualgate.gate.evidence.checks import Examination, Pair, examine, truncated_sets
from qualgate.gate.evidence.time_groups import timed_together
from qualgate.gate.rules import Slice
from qualgate.metrics import METRICS
from qualgate.records import NOISE, TWIN, Policy, RunEvidence
from qualgate.stats import cost_ratio, latency, percentiles
from qualgate.stats.intervals import clustered_share, independent_clusters, independent_trials, nonnegative_ratio
from qualgate.stats.paired.compare import MIN_CLUSTERS
from qualgate.stats.power import chance_to_approve, chance_to_block

ENOUGH = 0.8  # a policy that approves an identical variant more rarely is told to change
MOST_CLUSTERS = 100_000
DRAWS = 400  # of an earlier run's clusters: a rate is within 7 points (3 standard errors)
_LEAST_DRAWS = 100
_FEWEST_DRAWS = 40  # of large runs, where every draw is judged by itself
_CELLS = 1_000_000  # draws x clusters

UNTOLD = "no earlier run tells how much it varies"
NO_CHANCE = "counted, so no chance enters: kept or broken as the variant is"
ALL_OR_NOTHING = "a single answer that differs breaks it"

Rate = Callable[[NDArray], float]  # of the cases in each cluster, [clusters]


@dataclass(frozen=True, slots=True, kw_only=True)
class Foretold:
    """What is known beforehand of one slice."""

    approve: float | None = None  # P(proven | identical, or twice the saving that is asked for); None: not known
    block: float | None = None  # P(broken at Holm's first step | twice the allowance, or no saving); None: not known
    needed: int | None = None  # clusters like the planned ones at which `approve` is `ENOUGH`; where it is less
    note: str = ""  # what it rests on, or why it is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class _Model:
    approve: Rate | None = None
    block: Rate | None = None
    note: str = UNTOLD


def foretell(
    slices: Sequence[Slice],
    sizes: Callable[[Slice], Mapping[int, int]],
    policy: Policy,
    earlier: RunEvidence | None = None,
    chosen: Callable[[Slice], bool] = lambda _: True,
) -> dict[Slice, Foretold]:
    """Every slice of the policy that is no quality rule. Same arguments, same numbers.

    sizes: of a slice, how many clusters are planned of each number of answers. earlier: a run of the same gate file;
    what it does not hold, or holds broken, is as if there were none. chosen: those that are wanted.
    """
    before, family = _Before.of(earlier, policy), Counter(part.rule.tier for part in slices)
    found = {}
    for part in filter(chosen, slices):
        model = MODELS.get(METRICS[part.rule.metric].kind)
        if model is not None and part.obstacle:
            found[part] = Foretold(note=part.obstacle)
        elif model is not None:
            planned = sizes(part)
            clusters = np.repeat(np.array([*planned], float), [*planned.values()])
            found[part] = _told(model(part, before, policy.alpha, policy.alpha / family[part.rule.tier]), clusters)
    return found


def jointly(found: Mapping[Slice, Foretold]) -> float:
    """P(every critical rule of these proven | identical), of those foretold, taken to be independent.

    Times of one run rise and fall together, and with them rules on several of their percentiles: it can only be more.
    """
    return prod(one.approve for part, one in found.items() if part.rule.tier == "critical" and one.approve is not None)


def _told(model: _Model, clusters: NDArray) -> Foretold:
    if not len(clusters):
        return Foretold(approve=0.0, block=0.0, note="no case counts")
    approve = model.approve(clusters) if model.approve else None
    return Foretold(
        approve=approve,
        block=model.block(clusters) if model.block else None,
        needed=_needed(model.approve, clusters) if model.approve and approve is not None and approve < ENOUGH else None,
        note=model.note,
    )


def _needed(approve: Rate, clusters: NDArray) -> int | None:
    """To 1 %, of clusters like these; None above `MOST_CLUSTERS`."""
    low = high = len(clusters)
    while approve(np.resize(clusters, high)) < ENOUGH:
        low, high = high, 2 * high
        if high > MOST_CLUSTERS:
            return None
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        low, high = (low, middle) if approve(np.resize(clusters, middle)) >= ENOUGH else (middle, high)
    return high


# -------------------------------------------------------------------------------------------------- the earlier run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Before:
    """What an earlier run holds that nothing is wrong with."""

    run: str = ""
    arms: tuple[Examination, ...] = ()  # most like the baseline first
    terms: Terms | None = None
    alpha: float = 0.05

    @classmethod
    def of(cls, evidence: RunEvidence | None, policy: Policy) -> _Before:
        if evidence is None:
            return cls()
        sound = [one for one in examine(evidence) if one.pairs and not one.variant.endswith(TWIN)]
        rerun = next((one.pairs for one in sound if one.variant.endswith(NOISE)), {})
        arms = [replace(one, about=replace(one.about, rerun=rerun)) for one in sound]
        return cls(
            run=evidence.run_id,
            arms=tuple(sorted(arms, key=lambda one: (not _same_weights(one), _flips(one, evidence), one.variant))),
            terms=terms_of(evidence, policy),
            alpha=policy.alpha,
        )

    def measured(self, part: Slice) -> Iterator[tuple[Examination, Measured]]:
        for one in self.arms:
            yield one, self._measure(part, one)

    def itself(self, part: Slice) -> Measured | None:
        """The slice of the baseline's own answers, as if a variant had given them."""
        if not self.arms:
            return None
        pairs = {
            name: tuple(replace(pair, variant=pair.baseline) for pair in found)
            for name, found in self.arms[0].pairs.items()
        }
        return self._measure(part, replace(self.arms[0], pairs=pairs))

    def _measure(self, part: Slice, one: Examination) -> Measured:
        return measure(part, one.pairs, truncated_sets(one.pairs), self.alpha, self.terms, one.about)

    def lengths(self, part: Slice) -> NDArray:
        """Tokens of the baseline's answers; [1] where none is known: then all are taken to be equally long."""
        found = [pair.baseline.tokens for one in self.arms[:1] for pair in pairs_of(part, one.pairs)]
        return np.array(found if any(found) else [1], float)

    def longest(self, part: Slice) -> float | None:
        """How long an answer may become, in times of the baseline's mean answer; None: not known."""
        return next((longest(pairs_of(part, one.pairs)) for one in self.arms), None)


def _same_weights(one: Examination) -> bool:
    return one.variant.endswith(NOISE) or any(note.startswith("A/A") for note in one.notes)


def _flips(one: Examination, evidence: RunEvidence) -> int:
    return sum(
        pair.baseline.values.get(metric) != pair.variant.values.get(metric)
        for name, pairs in one.pairs.items()
        for pair in pairs
        for metric in evidence.metrics.get(name, ())
    )


def _why(part: Slice, measured: Measured | None, before: _Before) -> str:
    """Why the earlier run says nothing of the slice."""
    if measured is None or not measured.obstacle:
        return UNTOLD
    why, *_ = measured.obstacle.removeprefix(f"{part.head}: ").split(". ")
    return f"in run {before.run} {why}"


# ----------------------------------------------------------------------------------------------------------- ratios


def _ends(limit: float) -> tuple[float, float]:
    """The true ratios to be approved and to be blocked."""
    return (1.0, 1 + 2 * (limit - 1)) if limit >= 1 else (limit * limit, 1.0)


def _saving(limit: float, note: str) -> str:
    """A ratio below 1 is a promise: what "approve" and "block" then mean."""
    if limit >= 1:
        return note
    return f"{note}; asks for a saving: proven if it takes {limit * limit:.3g} times as much, broken if as much"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Spread:
    """How a ratio varied in an earlier run."""

    arm: str
    error: float  # standard error of its log
    clusters: int
    cases: int
    timed: float  # share of the cases that count: answers of one token have no time per further token
    even: float = 1.0  # share of the independent cases left when they count by their seconds


def _spread(part: Slice, before: _Before, alpha: float) -> _Spread | str:
    """Of the variant most like the baseline that has bounds; in words why there is none.

    From the lower bound alone: the upper one allows for slow cases that were not drawn as well.
    """
    why = UNTOLD
    for arm, one in before.measured(part):
        seen, pairs = one.comparison, pairs_of(part, arm.pairs)
        if not seen.lower or seen.upper is None or not seen.baseline or not seen.variant:
            why = _why(part, one, before)
            continue
        labels, metric = [pair.cluster for pair in pairs], part.rule.metric
        costs = METRICS[metric].kind == "cost"
        weights = [1.0 if costs else pair.baseline.values.get(metric) or 0.0 for pair in pairs]
        trials = independent_trials(weights, labels, alpha)
        even = trials / independent_trials(np.ones(len(labels)), labels, alpha)
        width = log(seen.variant / seen.baseline * (1 - _unseen(trials, alpha)) / seen.lower)
        return _Spread(
            arm=arm.variant,
            error=max(width, 0.0) / float(ndtri(1 - alpha)),
            clusters=seen.clusters or seen.n,
            cases=seen.n,
            timed=seen.n / len(pairs),
            even=even,
        )
    return why


def _ratio(part: Slice, before: _Before, alpha: float, strict: float) -> _Model:
    if part.rule.percentile is not None:
        return _percentile(part, part.rule.percentile, before, alpha, strict)
    limit, costs = part.rule.max_ratio or 0.0, METRICS[part.rule.metric].kind == "cost"
    draws = cost_ratio.DRAWS if costs else 10**9
    spread = _spread(part, before, alpha)
    if limit <= 0:
        return _Model(approve=lambda sizes: 0.0, note="nothing takes no time and costs nothing")
    if isinstance(spread, str):
        return _Model(note=spread)
    good, bad = _ends(limit)

    def chance(sizes: NDArray, truth: float, level: float) -> float:
        # Answers of one batch share its time: batches as large as those of the earlier run.
        alike = spread.timed * min(len(sizes), sizes.sum() * spread.clusters / spread.cases)
        if spread.timed * len(sizes) < MIN_CLUSTERS or alike < MIN_CLUSTERS:
            return 0.0
        # See `nonnegative_ratio` and `accepted_cost_ratio`: a share of the cases may be of a kind not drawn.
        unseen = _unseen(spread.timed * spread.even * independent_clusters(sizes, alpha), alpha)
        slow = latency.UNSEEN_SECONDS["of_limit"] * limit * unseen / (1 - unseen)
        asked = limit / (1 - unseen) if truth > limit else (limit if costs else limit / (1 - unseen)) - slow
        if asked <= 0:
            return 0.0
        distance = log(truth / asked) if truth > limit else log(asked / truth)
        return _tail(distance, spread.error * sqrt(spread.clusters / alike), level, draws)

    return _Model(
        approve=lambda sizes: chance(sizes, good, alpha),
        block=lambda sizes: chance(sizes, bad, strict),
        note=_saving(limit, f"varies as {spread.arm} did in run {before.run}"),
    )


def _percentile(part: Slice, percentile: float, before: _Before, alpha: float, strict: float) -> _Model:
    """Of the arm most like the baseline that has a ratio."""
    limit, measured = part.rule.max_ratio or 0.0, list(before.measured(part))
    if limit <= 0:
        return _Model(approve=lambda sizes: 0.0, note="nothing takes no time and costs nothing")
    seen = [(arm, one.comparison.variant, one.comparison.baseline) for arm, one in measured]
    found = [(arm, after / before_it) for arm, after, before_it in seen if after and before_it]
    if not found:
        return _Model(note=_why(part, measured[-1][1], before) if measured else UNTOLD)
    arm, ratio = found[0]
    least = max(MIN_CLUSTERS, percentiles.groups_needed(percentile, alpha))
    pairs = pairs_of(part, arm.pairs)
    times = [(p.baseline.values.get(part.rule.metric), p.variant.values.get(part.rule.metric)) for p in pairs]
    timed = [pair for pair, each in zip(pairs, times, strict=True) if None not in each]
    base, other = np.array([each for each in times if None not in each], float).T
    together, _ = timed_together(
        [pair.cluster for pair in timed], [pair.baseline for pair in timed], [pair.variant for pair in timed]
    )
    order = np.argsort(together, kind="stable")
    groups = np.split(order, np.flatnonzero(np.diff(together[order])) + 1)

    def chance(sizes: NDArray, truth: float, level: float) -> float:
        alike = floor(len(timed) / len(pairs) * min(len(sizes), sizes.sum() * len(groups) / len(timed)) + 1e-9)
        if alike < least:
            return 0.0
        after, decided = other * (truth / ratio), 0
        generator = np.random.default_rng(2)
        draws = min(_LEAST_DRAWS, max(_FEWEST_DRAWS, _CELLS // (10 * alike)))
        test = percentiles.p_above if truth > limit else percentiles.p_below
        for _ in range(draws):
            chosen = [groups[index] for index in generator.integers(0, len(groups), alike)]
            labels, rows = np.repeat(np.arange(alike), [len(group) for group in chosen]), np.concatenate(chosen)
            decided += test(base[rows], after[rows], labels, percentile, limit, level) <= level
        return decided / draws

    good, bad = _ends(limit)
    return _Model(
        approve=lambda sizes: chance(sizes, good, alpha),
        block=lambda sizes: chance(sizes, bad, strict),
        note=_saving(limit, f"varies as {arm.variant} did in run {before.run}"),
    )


def _unseen(trials: float, alpha: float) -> float:
    """Share of cases that may be of a kind not drawn: see `accepted_cost_ratio`."""
    return 1 - alpha ** (1 / trials)


def _tail(distance: float, error: float, alpha: float, draws: int) -> float:
    """P(a bound at alpha lies on the near side of a limit so far away), on the log scale.

    A bootstrap's p-value is (1 + k) / (1 + draws): below the least of them nothing is ever decided.
    """
    reached = floor(alpha * (1 + draws) + 1e-9) / (1 + draws)
    if reached <= 0:
        return 0.0
    if error <= 0:
        return float(distance > 0)
    return float(ndtr(distance / error + ndtri(reached)))


# -------------------------------------------------------------------------------------------------- shares of cases


def _share(part: Slice, before: _Before, alpha: float, strict: float) -> _Model:
    """Parity of answers, goodput, and the same answers again: `min` of all cases."""
    limit, parity = part.rule.min or 0.0, part.rule.metric == "parity.tokens"
    fact = limit == 1 and part.rule.metric != "goodput"
    own = None if parity else before.itself(part)
    if own is None or own.comparison.variant is None:
        good = 1.0 if parity else None
        note = "an identical variant says the same" if parity else _why(part, own, before)
    else:  # half a case is added, so that none missed is not taken for none ever
        seen, n = own.comparison.variant, own.comparison.n
        good, note = (seen * n + 0.5) / (n + 1), f"the baseline itself: {seen:.1%} in run {before.run}"

    def chance(sizes: NDArray, share: float, proven: bool) -> float:
        if len(sizes) < MIN_CLUSTERS and not fact:
            return 0.0
        n = _pairs(sizes, alpha)
        hits = np.arange(n + 1)
        if fact:
            decided = (hits == n) == proven
        else:
            decided = _reached(hits, n, limit) <= alpha if proven else bdtr(hits, n, limit) <= strict
        return float(np.diff(bdtr(hits, n, share), prepend=0.0).clip(0) @ decided)

    silent = own is not None and good is None  # such a run measures no share
    return _Model(
        approve=None if good is None else lambda sizes: chance(sizes, good, True),
        block=None if silent or limit == 1 else lambda sizes: chance(sizes, max(0.0, 2 * limit - 1), False),
        note=f"{note}; {ALL_OR_NOTHING}" if fact else note,
    )


def _reached(hits: NDArray, n: int, share: float) -> NDArray:
    """P(so many hits or more of n)."""
    return np.where(hits > 0, bdtrc(np.maximum(hits - 1, 0), n, share), 1.0)


def _goodput(part: Slice, before: _Before, alpha: float, strict: float) -> _Model:
    """By `max_drop` an answer in time is compared as a right one is."""
    margin = part.rule.max_drop
    if margin is None:
        return _share(part, before, alpha, strict)
    arm, one = next(before.measured(part), (None, None))
    if arm is None or one is None or one.comparison.lost is None or one.comparison.gained is None:
        return _Model(note=_why(part, one, before))
    if one.obstacle:
        return _Model(approve=lambda sizes: 0.0, note=one.obstacle.removeprefix(f"{part.head}: "))
    flips = (one.comparison.lost + one.comparison.gained + 1) / (one.comparison.n + 1)
    return _Model(
        approve=lambda sizes: chance_to_approve(_pairs(sizes, alpha), margin, flips, 0.0, alpha),
        block=lambda sizes: chance_to_block(_pairs(sizes, alpha), margin, flips + 2 * margin, -2 * margin, strict),
        note=f"in time as {arm.variant} was in run {before.run}",
    )


def _pairs(sizes: NDArray, alpha: float) -> int:
    return max(1, floor(independent_clusters(sizes, alpha) + 1e-9))


# ------------------------------------------------------------------------------------------------------------ drift


def _drift(part: Slice, before: _Before, alpha: float, strict: float) -> _Model:
    metric = part.rule.metric
    if metric == "parity.tokens":
        return _share(part, before, alpha, strict)
    lengths, worse, most = before.lengths(part), _worse(part, before), None
    if metric == "drift.length_ratio" and (most := before.longest(part)) is None:
        return _Model(note="no earlier run tells how long its answers are and may become")

    def approve(sizes: NDArray) -> float:
        spread = np.quantile(lengths, (np.arange(len(sizes)) + 0.5) / len(sizes))
        weights = sizes * np.random.default_rng(0).permutation(spread)
        drift = weights * _ends(part.rule.max or 0.0)[0] if metric == "drift.length_ratio" else 0 * weights
        return float(_judged(part, drift, weights, alpha, most)[0] <= alpha)

    note = "an identical variant says the same" if metric == "parity.prefix" else "an identical variant does not drift"
    if metric == "drift.length_ratio":
        note = _saving(part.rule.max or 0.0, "an identical variant is as long")
    if worse is None:
        silent = f"run {before.run} does not tell how much it varies" if before.run else UNTOLD
        twice = "twice nothing is nothing" if _allowance(part) == 0 else silent
        return _Model(approve=approve, note=f"{note}; {twice}")
    name, drift, weights, cases = worse

    def block(sizes: NDArray) -> float:
        alike = max(1, floor(min(len(sizes), sizes.sum() * len(drift) / cases) + 1e-9))
        draws = min(DRAWS, max(_LEAST_DRAWS, _CELLS // alike))
        rows = np.random.default_rng(1).integers(0, len(drift), (draws, alike))
        return float(np.mean([_judged(part, drift[row], weights[row], alpha, most)[1] <= strict for row in rows]))

    return _Model(approve=approve, block=block, note=f"{note}; varies as {name} did in run {before.run}")


def _allowance(part: Slice) -> float:
    """What the rule leaves room for: a drift, or a share that may differ."""
    rule = part.rule
    if rule.metric == "drift.length_ratio":
        return (rule.max or 0.0) - 1
    return rule.max if rule.max is not None else 1 - (rule.min or 0.0)


def _judged(
    part: Slice, drift: NDArray, weights: NDArray, alpha: float, most: float | None = None
) -> tuple[float, float]:
    """(p of "the limit is breached", p of "it is kept") as `gate.measure` has them.

    drift: of each cluster, what an identical variant has none of; of the length ratio, its tokens. [clusters]
    most: how long an answer may become, in times of the mean.
    """
    limit, each = _allowance(part), np.arange(len(drift))
    match part.rule.metric:
        case "drift.kl_max":
            return float(drift.max() > limit), float(drift.max() <= limit)
        case "parity.prefix" if limit == 0:
            return float(drift.any()), float(not drift.any())
        case _ if len(drift) < MIN_CLUSTERS:
            return 1.0, 1.0
        case "drift.kl_mean":
            found = nonnegative_ratio(drift, weights, each, limit, alpha, **UNSEEN_KL)
        case "drift.length_ratio":
            found = length_bounds(drift, weights, each, limit + 1, alpha, most)
        case "drift.kl_p99":
            found = clustered_share(drift, weights, each, 0.01, alpha)
        case _:  # drift.top1_agreement, parity.prefix
            found = clustered_share(drift, weights, each, limit, alpha)
    return found.p_below, found.p_above


def _worse(part: Slice, before: _Before) -> tuple[str, NDArray, NDArray, int] | None:
    """(its name, drift, weights, cases) of the variant that has to be scaled least to drift by twice the limit."""
    best, found = inf, None
    for arm in before.arms:
        pairs = pairs_of(part, arm.pairs)
        if _same_weights(arm) or not pairs or before._measure(part, arm).comparison.variant is None:
            continue
        labels, members = np.unique([pair.cluster for pair in pairs], return_inverse=True)
        scaled = _to_twice(part, pairs, members, len(labels))
        if scaled is not None and abs(log(scaled[0])) < best:
            best, found = abs(log(scaled[0])), (arm.variant, *scaled[1:], len(pairs))
    return found


def _to_twice(part: Slice, pairs: list[Pair], members: NDArray, count: int) -> tuple[float, NDArray, NDArray] | None:
    """(factor, drift, weights) of each cluster, the drift scaled to twice what the rule allows."""
    metric, twice = part.rule.metric, 2 * _allowance(part)

    def summed(values: Sequence[float]) -> NDArray:
        return np.bincount(members, np.asarray(values, float), count)

    weights = summed([len(pair.variant.kl) for pair in pairs])
    match metric:
        case "drift.kl_p99":
            level = float(np.quantile(np.concatenate([pair.variant.kl for pair in pairs]), 0.99))
            if twice <= 0 or level <= 0:
                return None
            over = summed([float(np.count_nonzero(np.array(pair.variant.kl) > level / 2)) for pair in pairs])
            return twice / level, over, weights
        case "drift.kl_max":
            drift = np.zeros(count)
            np.maximum.at(drift, members, [max(pair.variant.kl) for pair in pairs])
            factor = twice / drift.max() if drift.max() > 0 else 0.0
        case "drift.length_ratio":
            drift, weights = (
                summed([p.variant.tokens or 0 for p in pairs]),
                summed([p.baseline.tokens or 0 for p in pairs]),
            )
            factor = _ends(twice / 2 + 1)[1] * weights.sum() / drift.sum() if drift.any() else 0.0
        case "drift.kl_mean":
            drift = summed([sum(pair.variant.kl) for pair in pairs])
            factor = twice * weights.sum() / drift.sum() if drift.any() else 0.0
        case _:  # shares of positions: no cluster can have more than all
            if metric == "parity.prefix":
                weights = summed([len(pair.baseline.token_ids) // 4 for pair in pairs])
                drift = weights - summed([common_tokens(pair) for pair in pairs])
            else:
                drift = weights - summed([len(p.variant.kl) * (p.variant.top1_agreement or 0.0) for p in pairs])
            drift, target = drift.clip(0), min(twice, 1.0) * weights.sum()
            if not 0 < target <= weights[drift > 1e-9].sum():
                return None
            factor = _factor(drift, weights, target)
            return factor, np.minimum(factor * drift, weights), weights
    return (factor, factor * drift, weights) if factor > 0 else None


def _factor(drift: NDArray, weights: NDArray, target: float) -> float:
    """By which a drift, capped at the weight of its cluster, sums to the target."""
    low, high = 0.0, float((weights[drift > 1e-9] / drift[drift > 1e-9]).max())
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (low, middle) if np.minimum(middle * drift, weights).sum() >= target else (middle, high)
    return high


# ------------------------------------------------------------------------------------------- of a variant as a whole


def _whole(part: Slice, before: _Before, alpha: float, strict: float) -> _Model:
    """Decided surely wherever it is measured: what an earlier run could not measure, or none has, is not foretold."""
    rule, sure = part.rule, _Model(approve=lambda sizes: 1.0, block=lambda sizes: 1.0, note=NO_CHANCE)
    if rule.max_ratio is not None:
        return sure
    one = None
    for arm, one in before.measured(part):
        if one.comparison.variant is not None and not _same_weights(arm):
            seen = f"{one.comparison.variant:.4g} {METRICS[rule.metric].unit}"
            return replace(sure, note=f"{NO_CHANCE}; {arm.variant} had {seen} in run {before.run}")
    return _Model(note=_why(part, one, before) if one is not None else "no earlier run has measured it")


MODELS: dict[str, Callable[[Slice, _Before, float, float], _Model]] = {
    "latency": _ratio,
    "cost": _ratio,
    "drift": _drift,
    "service": _goodput,
    "stability": _share,
    "arm": _whole,
}
