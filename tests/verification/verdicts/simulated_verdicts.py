"""How often a policy approves and blocks, by drawing every single answer and asking the gate's own tests.

This is the oracle of the planner, and shares no code with `gate.outcomes` and `gate.prediction`. On a few draws
`gate.measure.measure` itself is asked, as it would be of a run. On the others the same tests decide, over
arrays, by the gate's p-values of the tables that were drawn.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv
from scipy.stats import t as student

from qualgate.gate.comparisons.by_metric import measure
from qualgate.gate.evidence.checks import Pair
from qualgate.gate.planning.assumed import Assumed
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.rules import Slice, check_policy
from qualgate.records import Policy, UnitEvidence, UnitKey
from qualgate.stats.cluster_bets import bets_serve
from qualgate.stats.intervals import independent_clusters
from qualgate.stats.paired.compare import proof
from qualgate.stats.unseen_clusters import p_at_most

CHECKED = 8  # draws of each slice that the gate itself decides as well
CELLS = 2_000_000  # answers drawn at a time
MOST_ANSWERS = 400_000_000  # drawn for one truth: larger sets get fewer draws, not below `LEAST_DRAWS`
LEAST_DRAWS = 5_000

Outcomes = tuple[NDArray, NDArray, NDArray]  # lost, gained, baseline right: [draws, answers] each


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    approve: float  # P(approve | identical)
    block: float  # P(block | so many times the margins are lost)
    undecided: float  # P(a critical rule is undecided, nothing is broken | identical)
    passed: float  # P(approve | so many times the margins are lost)
    draws: int
    checked: int  # decisions that the gate itself took as well
    differing: int  # of these, taken otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class View:
    """What one slice sees of the answers that are drawn."""

    part: Slice
    drawn: str  # the metric, or "metric any", "metric all" of a question's answers taken together
    places: dict[str, NDArray]  # evalset → its answers' places among all of the set
    sizes: NDArray  # answers that it sees of each cluster, evalset after evalset
    by_bets: bool  # is a loss within the margin proven by bets on clusters?

    @property
    def alone(self) -> bool:
        return bool((self.sizes == 1).all())


class Sums(NamedTuple):
    """Of what a slice sees, [draws] each."""

    lost: NDArray
    gained: NDArray
    right: NDArray
    flipped: NDArray  # clusters with a change
    residual: NDArray  # Σ (a cluster's gained − lost − what its size would have of the mean)²; 0 where all are alone
    capital: NDArray  # what 1 grows to by bets on every cluster


def simulated(
    sets: Sequence[PlannedSet],
    policy: Policy,
    assumed: Assumed,
    draws: int,
    seed: int = 5,
    *,
    block: bool = True,
    times: float = 2.0,
) -> Simulated:
    """times: how often a worse variant loses each set's smallest critical margin. block: else only the identical
    variant, and `block` and `passed` say nothing."""
    by_name = {one.name: one for one in sets}
    labels = {(one.name, str(index)): marks for one in sets for index, marks in enumerate(one.labels)}
    parts = check_policy(policy, {one.name: one.metrics for one in sets}, labels)
    views = [_view(part, by_name, policy.alpha) for part in parts]
    keys = sorted({(view.drawn, name) for view in views for name in view.places})
    draws = min(draws, max(LEAST_DRAWS, MOST_ANSWERS // sum(len(_cluster_of(by_name[n], drawn)) for drawn, n in keys)))
    rates, checked, differing = [], 0, 0
    undecided = 0.0
    for identical in (True, False) if block else (True,):
        generator = np.random.default_rng([seed, identical])
        losses = {} if identical else _margins(views, assumed, times)

        def drawn(count: int, generator=generator, losses=losses) -> dict[tuple[str, str], Outcomes]:
            return {
                key: _answers(by_name[key[1]], key[0], assumed, losses.get(key, 0.0), count, generator) for key in keys
            }

        sums, said = _every_draw(views, by_name, drawn, draws, policy.alpha)
        approved, blocked, open_ = np.ones(draws, bool), np.zeros(draws, bool), np.zeros(draws, bool)
        for index, view in enumerate(views):
            tier = view.part.rule.tier
            strict = policy.alpha / sum(other.part.rule.tier == tier for other in views)  # Holm's first step
            proven, broken = _decided(view, sums[index], policy.alpha, strict)
            if tier == "critical":
                approved &= proven & ~broken
                blocked |= broken
                open_ |= ~proven
            elif tier == "supporting":
                approved &= ~broken
            for draw, by_the_gate in said.items():
                p_within, p_broken = by_the_gate[index]
                checked += 2
                differing += (p_within <= policy.alpha) != proven[draw]
                differing += (p_broken <= strict) != broken[draw]
        rates.append((float(approved.mean()), float(blocked.mean())))
        undecided = float((open_ & ~blocked).mean()) if identical else undecided
    return Simulated(approve=rates[0][0], block=rates[-1][1], undecided=undecided, passed=rates[-1][0],
                     draws=draws, checked=checked, differing=int(differing))  # fmt: skip


# ------------------------------------------------------------------------------------------------------- the truth


def _cluster_of(one: PlannedSet, drawn: str) -> NDArray:
    """The cluster of every answer of a set; of answers taken together, of every question."""
    clusters = np.repeat(np.arange(len(one.clusters)), one.clusters) if one.clusters else np.arange(one.cases)
    return np.repeat(clusters, _each(one, drawn))


def _each(one: PlannedSet, drawn: str) -> int:
    """Outcomes of a question."""
    return 1 if drawn.endswith((" any", " all")) else one.repeats


def _view(part: Slice, by_name: Mapping[str, PlannedSet], alpha: float) -> View:
    rule, places, sizes = part.rule, {}, []
    drawn = rule.metric if rule.repeats == "mean" else f"{rule.metric} {rule.repeats}"
    for name in part.evalsets:
        clusters = _cluster_of(by_name[name], drawn)
        question = np.arange(len(clusters)) // _each(by_name[name], drawn)
        seen = np.array([part.only is None or (name, str(q)) in part.only for q in range(by_name[name].cases)])
        places[name] = np.flatnonzero(seen[question])
        sizes.append(np.unique(clusters[places[name]], return_counts=True)[1])
    each = np.concatenate(sizes)
    by_bets = rule.max_drop is not None and bets_serve(each, rule.max_drop, alpha)
    return View(part=part, drawn=drawn, places=places, sizes=each, by_bets=by_bets)


def _margins(views: Sequence[View], assumed: Assumed, times: float) -> dict[tuple[str, str], float]:
    """The loss of each set: so many times the smallest margin of a critical rule on it, a relative one's of its own
    rate."""
    losses: dict[tuple[str, str], float] = {}
    for view in views:
        for name in view.places if view.part.rule.tier == "critical" else ():
            key, rule = (view.drawn, name), view.part.rule
            relative = (rule.max_relative_drop or 0.0) * assumed.baseline.get(key, assumed.default_baseline)
            losses[key] = min(losses.get(key, 1.0), times * (rule.max_drop or relative))
    return losses


def _answers(
    one: PlannedSet, drawn: str, assumed: Assumed, loss: float, draws: int, generator: np.random.Generator
) -> Outcomes:
    """Every answer of a set. Each repeats its cluster's common outcome with the root of the correlation."""
    flips = assumed.disagreement.get((drawn, one.name), assumed.default_disagreement)
    right = assumed.baseline.get((drawn, one.name), assumed.default_baseline)
    cluster, each = _cluster_of(one, drawn), _each(one, drawn)
    questions = np.bincount(cluster) // each
    others = questions * each - 1
    alike = (each - 1) * assumed.repeat_correlation + (questions - 1) * each * assumed.correlation
    share = np.sqrt(alike / np.maximum(others, 1)).astype(np.float32)
    u = generator.random((draws, len(cluster)), dtype=np.float32)
    if share.any():
        common = generator.random((draws, len(questions)), dtype=np.float32)[:, cluster]
        repeats = generator.random(u.shape, dtype=np.float32) < share[cluster]
        np.copyto(u, common, where=repeats)
    return u < min(flips / 2 + loss, right), u >= 1 - min(flips / 2, 1 - right), u < right


# ---------------------------------------------------------------------------------------------- what each slice sees


def _every_draw(
    views: Sequence[View],
    by_name: Mapping[str, PlannedSet],
    drawn: Callable[[int], dict[tuple[str, str], Outcomes]],
    draws: int,
    alpha: float,
) -> tuple[list[Sums], dict[int, list[tuple[float, float]]]]:
    """The sums of each slice, and what the gate itself says of a few draws: (p_within, p_broken) of each slice."""
    asked = range(0, draws, max(1, draws // CHECKED))[:CHECKED]
    parts, said = [[] for _ in views], {}
    step = max(1, CELLS // max(1, sum(one.cases * one.repeats for one in by_name.values())))
    for start in range(0, draws, step):
        outcomes = drawn(min(step, draws - start))
        for view, found in zip(views, parts, strict=True):
            found.append(_summed(view, outcomes))
        for draw in asked:
            if start <= draw < start + step:
                pairs = {
                    key: _as_pairs(by_name[key[1]], key[0], [one[draw - start] for one in three], index)
                    for index, (key, three) in enumerate(outcomes.items())
                }
                said[draw] = [_by_the_gate(view, pairs, alpha) for view in views]
    return [Sums(*np.concatenate(found, axis=1)) for found in parts], said


def _summed(view: View, outcomes: Mapping[tuple[str, str], Outcomes]) -> NDArray:
    """[6, draws], as `Sums` has them."""
    lost, gained, right = (
        np.concatenate([outcomes[view.drawn, name][which][:, places] for name, places in view.places.items()], axis=1)
        for which in range(3)
    )
    if view.alone:
        down, up = lost.sum(axis=1), gained.sum(axis=1)
        return np.array([down, up, right.sum(axis=1), down + up, 0 * down, 0 * down])
    starts = np.cumsum(view.sizes) - view.sizes
    down, up = (np.add.reduceat(which, starts, axis=1, dtype=np.int16) for which in (lost, gained))
    mean = (up.sum(axis=1) - down.sum(axis=1)) / view.sizes.sum()
    off = up - down - mean[:, None] * view.sizes
    return np.array(
        [
            down.sum(axis=1),
            up.sum(axis=1),
            right.sum(axis=1),
            np.count_nonzero(down + up, axis=1),
            np.einsum("ij,ij->i", off, off),
            _grown(view, down, up) if view.by_bets else 0 * mean,
        ]
    )


def _grown(view: View, lost: NDArray, gained: NDArray) -> NDArray:
    """[draws] the capital: of each cluster 95 % of what one wholly lost could take is bet that less than the margin is
    lost of it, in proportion to its size."""
    margin, whole = view.part.rule.max_drop or 0.0, view.sizes.max()
    won = (margin * view.sizes - lost + gained) / whole / (1 - margin)
    return np.prod(1 + 0.95 * won, axis=1)


def _as_pairs(one: PlannedSet, drawn: str, three: Sequence[NDArray], index: int) -> tuple[Pair, ...]:
    """One draw of a set as the gate reads it from a run. Answers taken together are one repeat of their question."""
    metric, each = drawn.removesuffix(" any").removesuffix(" all"), _each(one, drawn)
    lost, gained, right = three

    def unit(arm: str, place: int, value: bool) -> UnitEvidence:
        key = UnitKey(arm=arm, evalset=one.name, case_id=str(place // each), repeat=place % each)
        return UnitEvidence(key=key, case_hash="", status="done", values={metric: float(value)})

    return tuple(
        Pair(baseline=unit("baseline", place, before), variant=unit("variant", place, after), cluster=cluster)
        for place, (before, after, cluster) in enumerate(
            zip(right, right & ~lost | gained, 1_000_000 * index + _cluster_of(one, drawn), strict=True)
        )
    )


def _by_the_gate(view: View, pairs: Mapping[tuple[str, str], tuple[Pair, ...]], alpha: float) -> tuple[float, float]:
    """P-values of "the limit is breached", 1 where nothing can be proven, and of "it is kept"."""
    found = measure(view.part, {name: pairs[view.drawn, name] for name in view.places}, {}, alpha)
    broken = found.comparison.p_broken
    return 1.0 if found.obstacle else found.p_within, 1.0 if broken is None else broken


# ------------------------------------------------------------------------------------------------ the gate's decisions


def _decided(view: View, sums: Sums, alpha: float, strict: float) -> tuple[NDArray, NDArray]:
    """[draws] proven within the limit at alpha, [draws] proven beyond it at `strict`."""
    rule, sizes = view.part.rule, view.sizes
    n, count, draws = int(sizes.sum()), len(sizes), len(sums.lost)
    if count < 20 and not view.alone:
        return np.zeros(draws, bool), np.zeros(draws, bool)

    def surely(alpha: float) -> NDArray:  # the least rate of the baseline
        right, wrong = _trials_right(sums.right, sizes, alpha)
        return np.where(right > 0, betaincinv(np.maximum(right, 1e-9), wrong + 1, alpha), 0.0)

    if rule.max_relative_drop is None:
        least = most = np.full(draws, float(rule.max_drop or 0.0))
        enough = surely(0.05) >= max(0.2, 5 * (rule.max_drop or 0.0))
    else:  # the rate's own bounds take a fiftieth of alpha
        spent = 0.02 * alpha
        alpha, strict = alpha - spent, strict - spent
        right, wrong = _trials_right(sums.right, sizes, spent)
        at_most = betaincinv(right + 1, np.maximum(wrong, 1e-9), 1 - spent)
        least, most = (rule.max_relative_drop * rate for rate in (surely(spent), np.where(wrong > 0, at_most, 1.0)))
        enough = surely(0.05) >= 0.2
    decide = _of_single_answers if view.alone else partial(_of_clusters, sizes=sizes)
    within, beyond = decide(sums, n, (least, most), alpha, strict)
    if view.by_bets:
        within = sums.capital >= 1 / alpha
    return within & enough, beyond & (least > 0)


def _of_single_answers(
    sums: Sums, n: int, margins: tuple[NDArray, NDArray], alpha: float, strict: float
) -> tuple[NDArray, NDArray]:
    table, size = (sums.lost, sums.gained), np.full(len(sums.gained), n)
    return (
        _rejected(table, size, margins[0], alpha, beyond=False),
        _rejected(table, size, margins[1], strict, beyond=True),
    )


def _of_clusters(
    sums: Sums, n: int, margins: tuple[NDArray, NDArray], alpha: float, strict: float, *, sizes: NDArray
) -> tuple[NDArray, NDArray]:
    """As `compare_clustered_pairs`: t with clusters never drawn, and the exact test at the effective size."""
    lost, gained, k = sums.lost, sums.gained, len(sizes)
    mean, trials = (gained - lost) / n, independent_clusters(sizes, alpha)
    each = n / trials
    robust = np.sqrt(sums.residual * k / (k - 1)) / n
    simple = np.sqrt(np.maximum(lost + gained - n * mean**2, 0) / (n * (n - 1.0)))
    with np.errstate(divide="ignore", invalid="ignore"):
        seen = (robust * student.ppf(1 - alpha, k - 1) / (simple * student.ppf(1 - alpha, n - 1))) ** 2
    effect = np.where((sums.flipped >= 20) & (simple > 0), np.clip(np.nan_to_num(seen, nan=1.0), 1.0, each), each)
    size = np.maximum((n / effect).astype(int), 1)
    share, less, more = size / n, np.floor, np.ceil
    worst = np.minimum(more(lost * share), size - less(gained * share)), less(gained * share)
    best = less(lost * share), np.minimum(more(gained * share), size - less(lost * share))
    within = p_at_most(mean, robust, k, trials, -margins[0]) <= alpha
    beyond = p_at_most(-mean, robust, k, trials, margins[1]) <= strict
    for passed, table, margin, level, wrong in (
        (within, worst, margins[0], alpha, False),
        (beyond, best, margins[1], strict, True),
    ):
        ask = np.flatnonzero(passed)
        asked = (table[0][ask], table[1][ask]), size[ask], margin[ask]
        passed[ask] = _rejected(*asked, level, beyond=wrong, plainly=True)
    return within, beyond


def _trials_right(right: NDArray, sizes: NDArray, alpha: float) -> tuple[NDArray, NDArray]:
    """Answers that are right and that are not, as so many independent trials."""
    n, trials = sizes.sum(), independent_clusters(sizes, alpha)
    return right / n * trials, (n - right) / n * trials


def _rejected(
    table: tuple[NDArray, NDArray], size: NDArray, margin: NDArray, alpha: float, *, beyond: bool, plainly: bool = False
) -> NDArray:
    """[draws] whether the gate's p-value of each table (lost, gained) is at most alpha; beyond: of a loss beyond the
    margin. The p-value moves one way as answers are lost, so of one size and margin the crossing is sought."""
    lost, gained = (one.astype(int) for one in table)
    if alpha <= 0 or not len(lost):
        return np.zeros(len(lost), bool)
    if size.min() == size.max() and margin.min() == margin.max():
        distinct, of = np.unique(gained, return_inverse=True)
        same = int(size[0]), float(margin[0]), alpha, beyond, plainly
        crossings = np.array([_crossing(int(one), *same) for one in distinct])[of]
        return lost >= crossings if beyond else lost < crossings
    rows, of = np.unique(np.stack([lost, gained, size, margin]), axis=1, return_inverse=True)
    p = [_p_value(int(a), int(b), int(n), float(m), beyond, plainly) for a, b, n, m in rows.T]
    return np.array(p)[of.ravel()] <= alpha


@lru_cache(maxsize=200_000)
def _crossing(gained: int, n: int, margin: float, alpha: float, beyond: bool, plainly: bool) -> int:
    """Fewest lost answers at which the p-value is on the other side of alpha."""
    crossed = lambda lost: (_p_value(lost, gained, n, margin, beyond, plainly) <= alpha) == beyond  # noqa: E731
    return bisect_left(range(max(0, n - gained) + 1), True, key=crossed)


def _p_value(lost: int, gained: int, n: int, margin: float, beyond: bool, plainly: bool) -> float:
    table, loss = ((gained, lost), -margin) if beyond else ((lost, gained), margin)
    return proof(*table, n, loss, plainly=plainly)
