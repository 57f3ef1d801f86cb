"""Does the planner predict what the gate does, and does stopping early save cases without lying?

Rows of `qualgate bench decisions`: `planner.rates`, `planner.decidable`, `early.identical`, `early.twice`,
`early.worst`, `peeking`. Every function is seeded and returns a `Row`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, floor, inf, isfinite, log, sqrt
from pathlib import Path
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, ndtri
from scipy.stats import t as student

from qualgate.gate.outcomes import Assumed, PlannedSet
from qualgate.gate.planner import plan_policy
from qualgate.gate.rules import check_policy
from qualgate.records import Policy, Rule
from qualgate.stats.intervals import clustered_share
from qualgate.stats.paired import compare_clustered_pairs, proof
from qualgate.stats.power import chance_to_block, pairs_to_approve
from qualgate.stats.sequential import UNTOLD, Presumed, capital, presume

MARGINS = (0.01, 0.02, 0.05)
DISAGREEMENTS = (0.01, 0.02, 0.05, 0.10, 0.15)  # of an identical variant; a loss adds lost answers to them
ALPHA, POWER = 0.05, 0.95
LIST = 1.45  # times the fixed test's cases: a list on which stopping early settles an identical variant as often
TOLD_WEIGHT = 3.0  # changed answers that the true disagreement weighs as much as
CHECKED = 8  # draws of each rule with clusters that the gate's own function decides as well


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one row of the goal table measured. `rounds`: one entry for each cell or policy."""

    id: str
    measured: Any
    spread: Any
    met: bool
    rounds: list[dict[str, Any]]


# --------------------------------------------------------------------------------------------------- the planner


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A policy on its sets, with the truth that both the planner and the simulation are told."""

    name: str
    sets: tuple[PlannedSet, ...]
    policy: Policy
    assumed: Assumed


def policies(count: int = 50, seed: int = 11) -> list[Case]:
    """The documented ones of a peer's tutorial first (sizes and disagreement as in its benchmarks), then drawn ones."""
    named = {"mmlu_pro": (12_032, 0.08), "gpqa": (198, 0.10), "gsm8k": (1_319, 0.05), "aime": (30, 0.15),
             "humaneval": (164, 0.06)}  # fmt: skip

    def of(name: str, chosen: tuple[str, ...], *rules: Rule) -> Case:
        sets = tuple(PlannedSet(name=one, metrics=("exact_match",), cases=named[one][0]) for one in chosen)
        flips = {("exact_match", one): named[one][1] for one in chosen}
        return Case(name=name, sets=sets, policy=Policy(rules=rules), assumed=Assumed(disagreement=flips,
                    default_baseline=0.755))  # fmt: skip

    each = Rule(metric="exact_match", scope="evalset", max_drop=0.01)
    suite = ("mmlu_pro", "gpqa", "gsm8k", "aime")
    found = [
        of("suite at 1 point each", suite, each),
        of("suite, supporting small sets", suite, Rule(metric="exact_match", evalset="mmlu_pro", max_drop=0.01),
           Rule(metric="exact_match", evalset="gpqa", max_drop=0.01, tier="supporting")),
        of("MMLU-Pro at 1 point", ("mmlu_pro",), each),
        of("GSM8K at 1 point", ("gsm8k",), each),
        of("GPQA at 1 point", ("gpqa",), each),
        of("HumanEval at 1 point", ("humaneval",), each),
        of("suite pooled at 1 point", suite, Rule(metric="exact_match", max_drop=0.01)),
    ]  # fmt: skip
    generator = np.random.default_rng(seed)
    while len(found) < count:
        found.append(_drawn_policy(f"drawn {len(found)}", generator))
    return found[:count]


def _drawn_policy(name: str, generator: np.random.Generator) -> Case:
    pick = lambda *choices: choices[generator.integers(len(choices))]  # noqa: E731
    sets, flips = [], {}
    for index in range(pick(1, 1, 2, 3, 5)):
        cases = pick(60, 164, 198, 400, 400, 500, 800, 1_319, 2_500)
        metrics = pick(("exact_match",), ("exact_match",), ("exact_match", "json.valid"))
        clustered = generator.random() < 0.12
        clusters = (pick(2, 4),) * (min(cases, 500) // 4) if clustered else ()
        sets.append(PlannedSet(name=f"set{index}", metrics=metrics, cases=sum(clusters) or cases, clusters=clusters))
        for metric in metrics:
            flips[metric, f"set{index}"] = pick(0.01, 0.02, 0.05, 0.05, 0.08, 0.10, 0.15)
    margin = pick(0.01, 0.02, 0.02, 0.03, 0.05)
    rules = [Rule(metric="exact_match", max_drop=margin)]
    if len(sets) > 1 and generator.random() < 0.7:
        rules.append(Rule(metric="exact_match", scope="evalset", max_drop=pick(margin, 0.05, 0.08)))
    if any("json.valid" in one.metrics for one in sets):
        rules.append(Rule(metric="json.valid", max_drop=pick(0.02, 0.05), tier=pick("critical", "supporting")))
    return Case(name=name, sets=tuple(sets), policy=Policy(rules=tuple(rules)),
                assumed=Assumed(disagreement=flips, default_baseline=pick(0.6, 0.755, 0.9)))  # fmt: skip


def planner_rates(count: int = 50, draws: int = 22_500, kept: Path | None = None) -> tuple[Row, Row]:
    """`planner.rates` and `planner.decidable`: predicted against simulated, before and after the printed change.

    kept: a file of JSON lines, one for each policy as it is done; what it holds already is not measured again.
    """
    done = (
        {one["policy"]: one for one in map(json.loads, kept.read_text().splitlines())} if kept and kept.exists() else {}
    )
    for case in policies(count):
        if case.name not in done:
            done[case.name] = _round(case, draws)
            if kept:
                with kept.open("a") as file:
                    file.write(json.dumps(done[case.name]) + "\n")
    rounds = [done[case.name] for case in policies(count)]
    off = [abs(one[what][0] - one[what][1]) for one in rounds for what in ("approve", "block", "after") if one[what]]
    reached = sum((one["after"] or one["approve"])[1] >= 0.8 for one in rounds)
    refused = sum(one["refused"] for one in rounds)
    told = sum(one["checked"] for one in rounds), sum(one["differing"] for one in rounds)
    measured = {"reach": reached / len(rounds), "refused": refused / len(rounds), "policies": len(rounds),
                "before": sum(one["approve"][1] >= 0.8 for one in rounds) / len(rounds),
                "checked": told[0], "differing": told[1]}  # fmt: skip
    return (
        Row(id="planner.rates", measured=max(off), spread=float(np.median(off)),
            met=max(off) <= 0.02 and told[1] <= 0.01 * told[0], rounds=rounds),
        Row(id="planner.decidable", measured=measured, spread=None,
            met=reached >= 0.95 * len(rounds) and reached + refused == len(rounds), rounds=[]),
    )  # fmt: skip


def _round(case: Case, draws: int) -> dict[str, Any]:
    started = process_time()
    planned = plan_policy(case.sets, case.policy, case.assumed)
    seconds = process_time() - started
    found = simulated(case.sets, case.policy, case.assumed, draws)
    entry = {"policy": case.name, "draws": found.draws, "approve": [planned.approve, found.approve],
             "block": [planned.block, found.block], "change": None, "after": None, "refused": planned.refused,
             "seconds": seconds, "checked": found.checked, "differing": found.differing}  # fmt: skip
    if planned.changes:
        change = planned.changes[0]
        after = simulated(_sets_of(case, change.cases), change.policy, case.assumed, draws, block=False)
        entry |= {"change": change.kind, "after": [change.approve, after.approve],
                  "checked": found.checked + after.checked, "differing": found.differing + after.differing}  # fmt: skip
    return entry


def _sets_of(case: Case, cases: dict[str, int]) -> tuple[PlannedSet, ...]:
    """The case's sets with as many cases as the change asks for."""
    grown = []
    for one in case.sets:
        clusters = (one.clusters * ceil(cases[one.name] / one.cases))[: cases[one.name] // max(one.clusters, default=1)]
        grown.append(PlannedSet(name=one.name, metrics=one.metrics, cases=cases[one.name], clusters=clusters))
    return tuple(grown)


@dataclass(frozen=True, slots=True, kw_only=True)
class Simulated:
    approve: float  # P(approve | identical)
    block: float  # P(block | twice the margins)
    draws: int
    checked: int  # rules with clusters decided by the gate's own function as well
    differing: int  # of these, decided otherwise


def simulated(
    sets: tuple[PlannedSet, ...], policy: Policy, assumed: Assumed, draws: int, seed: int = 5, *, block: bool = True
) -> Simulated:
    """Rates by drawing every case and asking the gate's own tests. block: else only the identical variant."""
    slices = check_policy(policy, {one.name: one.metrics for one in sets})
    by_name = {one.name: one for one in sets}
    twice: dict[tuple[str, str], float] = {}
    for part in slices:
        for name in part.evalsets if part.rule.tier == "critical" else ():
            key = (part.rule.metric, name)
            twice[key] = min(twice.get(key, 1.0), 2 * (part.rule.max_drop or 0.0))
    rates, checks = [], np.zeros(2, int)
    for identical in (True, False) if block else (True,):
        generator = np.random.default_rng([seed, identical])
        losses = {} if identical else twice
        outcomes = {
            (metric, one.name): _outcomes(one, assumed, metric, losses.get((metric, one.name), 0.0), draws, generator)
            for one in sets
            for metric in one.metrics
        }
        approved, blocked = np.ones(draws, bool), np.zeros(draws, bool)
        for part in slices:
            alpha = ALPHA / sum(other.rule.tier == part.rule.tier for other in slices)
            mine = [outcomes[part.rule.metric, name] for name in part.evalsets]
            sizes = [by_name[name].clusters or (1,) * by_name[name].cases for name in part.evalsets]
            margin = part.rule.max_drop or 0.0
            if all(len(one) == sum(one) for one in sizes):
                within, beyond = _decided(mine, sum(map(len, sizes)), margin, alpha)
            else:
                within, beyond, check = _decided_clusters(mine, sizes, margin, alpha)
                checks += check
            if part.rule.tier == "critical":
                approved &= within & ~beyond
                blocked |= beyond
            elif part.rule.tier == "supporting":
                approved &= ~beyond
        rates.append(float((approved if identical else blocked).mean()))
    return Simulated(approve=rates[0], block=rates[-1], draws=draws, checked=int(checks[0]), differing=int(checks[1]))


def _outcomes(
    one: PlannedSet, assumed: Assumed, metric: str, loss: float, draws: int, generator: np.random.Generator
) -> tuple[NDArray, NDArray, NDArray]:
    """(lost, gained, baseline right), [draws] each; of clustered sets [draws, clusters]."""
    flips = assumed.disagreement.get((metric, one.name), assumed.default_disagreement)
    right = assumed.baseline.get((metric, one.name), assumed.default_baseline)
    gains = min(flips / 2, 1 - right)
    given_right = min(flips / 2 + loss, right) / right
    if not one.clusters:  # whether the baseline is right, and then whether the variant differs
        n_right = generator.binomial(one.cases, right, draws)
        return (generator.binomial(n_right, given_right),
                generator.binomial(one.cases - n_right, gains / (1 - right)), n_right)  # fmt: skip
    member = np.repeat(np.arange(len(one.clusters)), one.clusters)
    starts = np.cumsum((0, *one.clusters[:-1]))
    found = []
    for start in range(0, draws, step := max(1, 4_000_000 // one.cases)):
        shape = (min(step, draws - start), one.cases)
        u = generator.random(shape, dtype=np.float32)
        shared = generator.random((shape[0], len(one.clusters)), dtype=np.float32)[:, member]
        alike = generator.random(shape, dtype=np.float32) < sqrt(0.1)  # two of a cluster correlate by 0.1
        u = np.where(alike, shared, u)
        each = u < right * given_right, u > 1 - gains, u < right
        found.append([np.add.reduceat(which, starts, axis=1, dtype=np.int16) for which in each])
    return tuple(np.concatenate(column) for column in zip(*found, strict=True))  # type: ignore[return-value]


def _decided(mine: list, n: int, margin: float, alpha_block: float) -> tuple[NDArray, NDArray]:
    lost, gained, right = (np.sum([part[index] for part in mine], axis=0) for index in range(3))
    sure = betaincinv(np.maximum(right, 1e-9), n - right + 1, ALPHA) >= max(0.2, 5 * margin)
    within = lost <= _edge(gained, n, margin, ALPHA, beyond=False)
    return within & sure, lost >= _edge(gained, n, margin, alpha_block, beyond=True)


def _decided_clusters(
    mine: list, sizes: list, margin: float, alpha_block: float
) -> tuple[NDArray, NDArray, tuple[int, int]]:
    """The gate's test of clusters on every draw; a few draws are handed to `compare_clustered_pairs` itself as well.

    Last: decisions checked so, and those that came out otherwise.
    """
    s = np.concatenate([np.array(one) for one in sizes])
    n, k, draws = int(s.sum()), len(s), len(mine[0][0])
    within, beyond = np.zeros(draws, bool), np.zeros(draws, bool)
    if k < 20:
        return within, beyond, (0, 0)
    lost, gained, right = (
        np.sum([part[index] if np.ndim(part[index]) == 1 else part[index].sum(axis=1, dtype=int) for part in mine], 0)
        for index in range(3)
    )
    mean = (gained - lost) / n
    residual, flipped = np.zeros(draws), np.zeros(draws)
    for part, own in zip(mine, sizes, strict=True):
        if np.ndim(part[0]) == 1:  # single cases: +1, −1 or 0
            residual += part[1] * (1 - mean) ** 2 + part[0] * (1 + mean) ** 2
            residual += (len(own) - part[0] - part[1]) * mean**2
            flipped += part[0] + part[1]
            continue
        for rows in np.array_split(np.arange(draws), max(1, draws * len(own) // 4_000_000)):
            off = (part[1][rows] - part[0][rows]) - mean[rows, None] * np.array(own)
            residual[rows] += np.einsum("ij,ij->i", off, off)
            flipped[rows] += np.count_nonzero(part[0][rows] + part[1][rows], axis=1)
    robust = np.sqrt(residual * k / (k - 1)) / n
    simple = np.sqrt(np.maximum(lost + gained - n * mean**2, 0) / (n * (n - 1.0)))
    kish = float(s @ s) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        seen = (robust * student.ppf(1 - ALPHA, k - 1) / (simple * student.ppf(1 - ALPHA, n - 1))) ** 2
        t = np.where(robust > 0, (mean + margin) / robust, np.sign(mean + margin) * np.inf)
    effect = np.where((flipped >= 20) & (simple > 0), np.clip(np.nan_to_num(seen, nan=1.0), 1.0, kish), kish)
    size = np.maximum((n / effect).astype(int), 1)
    less, more = np.floor, np.ceil
    worst = np.minimum(more(lost * (size / n)), size - less(gained * (size / n))), less(gained * (size / n))
    best = less(lost * (size / n)), np.minimum(more(gained * (size / n)), size - less(lost * (size / n)))
    ask = np.flatnonzero(student.sf(t, k - 1) <= ALPHA)
    within[ask] = worst[0][ask] <= _edges(worst[1][ask], size[ask], margin, ALPHA, beyond=False)
    ask = np.flatnonzero(student.cdf(t, k - 1) <= alpha_block)
    beyond[ask] = best[0][ask] >= _edges(best[1][ask], size[ask], margin, alpha_block, beyond=True)
    sure = betaincinv(np.maximum(right / kish, 1e-9), (n - right) / kish + 1, ALPHA) >= max(0.2, 5 * margin)
    clusters, differing = np.repeat(np.arange(k), s), 0
    asked = np.arange(0, draws, max(1, draws // CHECKED))[:CHECKED]
    for draw in asked:
        pairs = [_as_pairs(part, draw, own) for part, own in zip(mine, sizes, strict=True)]
        before, after = (np.concatenate([pair[side] for pair in pairs]) for side in (0, 1))
        result = compare_clustered_pairs(before, after, clusters, margin, ALPHA)
        enough = clustered_share(before, np.ones(n), clusters, 0.0, ALPHA).lower >= max(0.2, 5 * margin)
        said = result.p_within <= ALPHA, result.p_beyond <= alpha_block, enough
        differing += sum(
            bool(a) != bool(b) for a, b in zip(said, (within[draw], beyond[draw], sure[draw]), strict=True)
        )
    return within & sure, beyond, (3 * len(asked), differing)


def _as_pairs(part: tuple, draw: int, sizes: tuple[int, ...]) -> tuple[NDArray, NDArray]:
    """Answers of both arms with these counts in each cluster."""
    if len(sizes) == sum(sizes):
        lost, gained, right = (int(np.ravel(one[draw])[0]) if np.ndim(one) == 1 else one[draw] for one in part)
        if np.ndim(part[0]) == 1:  # the set alone has no clusters: any order of its cases will do
            before = np.arange(len(sizes)) < right
            after = before.copy()
            after[:lost] = False
            after[len(sizes) - gained :] = gained > 0
            return before.astype(float), after.astype(float)
    before, after = [], []
    for size, lost, gained, right in zip(sizes, *(one[draw].tolist() for one in part), strict=True):
        before += [1] * right + [0] * (size - right)
        after += [0] * lost + [1] * (right - lost) + [1] * gained + [0] * (size - right - gained)
    return np.array(before, float), np.array(after, float)


def _edge(gained: NDArray, n: int, margin: float, alpha: float, *, beyond: bool) -> NDArray:
    """Most lost answers at which the gate's p-value proves the loss within the margin (or fewest: beyond), by `gained`.

    Found from the p-values themselves at each number of gained answers to 60 of them; of more, at 40, and in between
    the edge is all but straight.
    """
    distinct = np.unique(gained.astype(int))
    knots = distinct if len(distinct) <= 60 else np.unique(np.linspace(distinct[0], distinct[-1], 40).astype(int))
    found: list[int] = []
    for index, knot in enumerate(map(int, knots)):
        near = found[-1] + knot - int(knots[index - 1]) if found else round(knot + n * margin)
        found.append(_edge_at(knot, n, margin, alpha, beyond, near))
    return np.rint(np.interp(gained, knots, found))


def _edges(gained: NDArray, size: NDArray, margin: float, alpha: float, *, beyond: bool) -> NDArray:
    """Likewise where every draw has its own number of pairs, and to a fraction: between knots, as p-values go there.

    Knots 4 % of the pairs and 12 % of the gained answers apart, and at least one; the same for every draw, so that what
    is found once serves all.
    """
    if not len(gained):
        return np.zeros(0)
    sizes, gains = (np.unique(np.rint(np.append(np.arange(16), 16 * step ** np.arange(count))).astype(int))
                    for step, count in ((1.04, 240), (1.12, 80)))  # fmt: skip
    row, column = np.searchsorted(sizes, size, "right") - 1, np.searchsorted(gains, gained, "right") - 1
    found = np.zeros((2, 2, len(gained)))
    for up in (0, 1):
        for over in (0, 1):
            cells, places = np.unique(np.stack([row + up, column + over]), axis=1, return_inverse=True)
            knots = [_crossing_at(int(gains[g]), int(sizes[s]), margin, alpha, beyond) for s, g in cells.T]
            found[up, over] = np.array(knots)[places.ravel()]
    by_size = (size - sizes[row]) / (sizes[row + 1] - sizes[row])
    by_gains = (gained - gains[column]) / (gains[column + 1] - gains[column])
    low, high = found[:, 0] + (found[:, 1] - found[:, 0]) * by_gains
    return low + (high - low) * by_size


@lru_cache(maxsize=100_000)
def _crossing_at(gained: int, n: int, margin: float, alpha: float, beyond: bool) -> float:
    """Lost answers at which the p-value crosses alpha, to a fraction of one: linear on the normal scale."""

    gained, aim, sign = min(gained, n), float(ndtri(alpha)), -1.0 if beyond else 1.0
    error = sqrt(2 * gained + n * margin + 1)

    def over(lost: int) -> float:
        p = proof(gained, lost, n, -margin) if beyond else proof(lost, gained, n, margin)
        return sign * (float(ndtri(min(max(p, 1e-15), 1 - 1e-15))) - aim)

    low, high, least, most = -1, n - gained + 1, -inf, inf  # no table has these
    lost = round(gained + n * margin + sign * aim * error)
    while high - low > 1:
        lost = min(max(lost, low + 1), high - 1)
        found = over(lost)
        low, high, least, most = (lost, high, found, most) if found <= 0 else (low, lost, least, found)
        step = -found * error  # lands beyond the crossing, so that both sides are soon known
        lost += floor(step) if found > 0 else ceil(step) or 1
    return low - least / (most - least) if isfinite(least) and isfinite(most) else low + 0.5


_EDGES: dict[tuple[int, int, float, float, bool], int] = {}


def _edge_at(gained: int, n: int, margin: float, alpha: float, beyond: bool, near: int) -> int:
    """near: where to look first; what is found does not depend on it."""
    key = (gained, n, margin, alpha, beyond)
    if key in _EDGES:
        return _EDGES[key]

    def few(lost: int) -> bool:  # on the side of few lost
        return ((proof(gained, lost, n, -margin) if beyond else proof(lost, gained, n, margin)) <= alpha) != beyond

    near = min(max(near, 0), n - gained)
    low, high, step = -1, n - gained + 1, 1
    if few(near):
        low = near
        while low + step < high and few(low + step):
            low, step = low + step, 2 * step
        high = min(high, low + step)
    else:
        high = near
        while high - step > low and not few(high - step):
            high, step = high - step, 2 * step
        low = max(low, high - step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if few(middle) else (low, middle)
    return _EDGES.setdefault(key, high if beyond else low)


# ------------------------------------------------------------------------------------------------- stopping early


def early(paths: int = 2_000, margins: tuple[float, ...] = MARGINS, seed: int = 3) -> tuple[Row, Row, Row]:
    """`early.identical`, `early.twice`, `early.worst`: cases used, over those of the fixed exact test of equal power.

    A cell's variant is looked at after every case and given up at the number of cases by which 95 % have settled, so
    both tests have power .95 at alpha .05. Nobody tells the disagreement; the list is as long as this power takes,
    about `LIST` times the fixed test's for an identical variant, and of that the stakes make what they can ("mean").
    Beside it: a list ten times as long, which tells little ("long"), and an oracle that tells the true disagreement
    ("told"). Truths between cost more: the third row.
    """
    rounds: list[dict[str, Any]] = []
    for margin in margins:
        for flips in DISAGREEMENTS:
            for beyond in (False, True):
                fixed = fixed_pairs(margin, flips, beyond=beyond)
                cell = {"margin": margin, "disagreement": flips, "beyond": beyond, "fixed": fixed, "paths": paths}
                loss = 2 * margin if beyond else 0.0
                listed = ceil(LIST * fixed_pairs(margin, flips, beyond=False))
                for how, presumed in (
                    ("listed", presume(margin, listed, ALPHA)),
                    ("long", presume(margin, 10 * listed, ALPHA)),
                    ("told", Presumed(disagreement=flips, weight=TOLD_WEIGHT)),
                ):
                    settled = stopping_times(
                        margin, flips, loss, 3 * fixed, paths, [seed, len(rounds)], beyond=beyond, presumed=presumed
                    )
                    cap = int(np.sort(settled)[ceil(POWER * len(settled)) - 1])
                    used = np.minimum(settled, cap) / fixed
                    cell[how] = {"cap": cap, "saved": 1 - float(used.mean()), "error": float(used.std() / sqrt(paths))}
                rounds.append(cell)
    rows = []
    for id, beyond in (("early.identical", False), ("early.twice", True)):
        cells = [one for one in rounds if one["beyond"] == beyond]
        saved = [one["listed"]["saved"] for one in cells]
        all_cases = sum(one["listed"]["saved"] * one["fixed"] for one in cells) / sum(one["fixed"] for one in cells)
        beside = {how: float(np.mean([one[how]["saved"] for one in cells])) for how in ("long", "told")}
        measured = {
            "mean": float(np.mean(saved)),
            **beside,
            "of_all_cases": all_cases,
            "least": min(saved),
            "most": max(saved),
        }
        error = sqrt(sum(one["listed"]["error"] ** 2 for one in cells)) / len(cells)
        rows.append(Row(id=id, measured=measured, spread=error, met=measured["mean"] >= 0.4, rounds=cells))
    return rows[0], rows[1], _worst(paths, margins, seed)


def _worst(paths: int, margins: tuple[float, ...], seed: int) -> Row:
    """Truths between: mean cases at a list three times the fixed test's, settled either way, or never."""
    rounds = []
    for margin in margins:
        for flips in (0.02, 0.05, 0.10):
            fixed = fixed_pairs(margin, flips, beyond=False)
            for times in (0.25, 0.5, 0.75, 1.0, 1.25, 1.5):
                presumed = presume(margin, 3 * fixed, ALPHA)
                stream = [seed, 99, len(rounds)]  # the same for both, so the same paths
                first = np.minimum(
                    *(
                        stopping_times(
                            margin, flips, times * margin, 3 * fixed, paths // 4, stream, beyond=b, presumed=presumed
                        )
                        for b in (False, True)
                    )
                )
                rounds.append({"margin": margin, "disagreement": flips, "loss": times * margin, "fixed": fixed,
                               "mean": float(first.mean()) / fixed,
                               "settled": float((first <= 3 * fixed).mean())})  # fmt: skip
    worst = max(rounds, key=lambda one: one["mean"])
    return Row(id="early.worst", measured=worst, spread=None, met=True, rounds=rounds)


@lru_cache(maxsize=128)
def fixed_pairs(margin: float, flips: float, *, beyond: bool) -> int:
    """Pairs that the fixed exact test needs for power .95: an identical variant proven, or twice the margin broken."""
    if not beyond:
        found = pairs_to_approve(margin, flips, POWER, ALPHA)
        assert found is not None
        return found
    low, high = 1, ceil(25 * (flips + 2 * margin) / margin**2)
    while high - low > max(1, low // 100):
        middle = (low + high) // 2
        reached = chance_to_block(middle, margin, flips + 2 * margin, -2 * margin, ALPHA) >= POWER
        low, high = (low, middle) if reached else (middle, high)
    return high


def stopping_times(
    margin: float,
    flips: float,
    loss: float,
    most: int,
    paths: int,
    seed: list[int],
    *,
    beyond: bool,
    presumed: Presumed = UNTOLD,
) -> NDArray:
    """Cases after which each simulated variant was settled in this direction; most + 1: never."""
    generator = np.random.default_rng(seed)
    times = []
    while sum(map(len, times)) < paths:
        count = max(1, min(paths - sum(map(len, times)), 1_000_000 // most))
        x = _losses(generator, (count, most), flips / 2 + loss, flips / 2)
        crossed = capital(x, margin, beyond=beyond, presumed=presumed) >= -log(ALPHA)
        times.append(np.where(crossed.any(axis=1), crossed.argmax(axis=1) + 1, most + 1))
    return np.concatenate(times)


def _losses(generator: np.random.Generator, shape: tuple[int, int], lost: float, gained: float) -> NDArray:
    u = generator.random(shape, dtype=np.float32)
    return (u < lost).astype(np.int8) - (u >= 1 - gained).astype(np.int8)


def peeking(schedules: int = 100_000, cases: int = 1_000, seed: int = 17) -> Row:
    """Sequences at the margin itself; the adversary looks after every case and stops at the best moment.

    Cells: margin, flips beside the loss, both directions; then lists drawn without replacement whose loss is the
    margin exactly, and clusters of 4 that mostly answer alike.
    """
    rounds = []
    kinds = [("cases", m, d) for m in (0.01, 0.02, 0.05, 0.15) for d in (0.0, 0.02, 0.10, 0.50)]
    kinds += [("list", 0.02, 0.05), ("list", 0.05, 0.10), ("clusters", 0.02, 0.10), ("clusters", 0.05, 0.05)]
    each = ceil(schedules / (2 * len(kinds)))
    for kind, margin, flips in kinds:
        for beyond in (False, True):
            generator = np.random.default_rng([seed, len(rounds)])
            crossed = 0
            for start in range(0, each, 1_000):
                x, size = _at_the_margin(kind, margin, flips, (min(1_000, each - start), cases), generator)
                presumed = presume(margin, x.shape[1])
                best = capital(x, margin, beyond=beyond, presumed=presumed, sizes=size, largest=size).max(axis=1)
                crossed += int((best >= -log(ALPHA)).sum())
            rounds.append({"kind": kind, "margin": margin, "flips": flips, "beyond": beyond, "schedules": each,
                           "crossed": crossed / each})  # fmt: skip
    total = sum(one["crossed"] * one["schedules"] for one in rounds) / sum(one["schedules"] for one in rounds)
    worst = max(one["crossed"] for one in rounds)
    error = sqrt(ALPHA * (1 - ALPHA) / each)
    measured = {"crossed": total, "worst_cell": worst, "schedules": each * len(rounds)}
    return Row(id="peeking", measured=measured, spread=error, met=worst <= ALPHA + 3 * error, rounds=rounds)


def _at_the_margin(
    kind: str, margin: float, flips: float, shape: tuple[int, int], generator: np.random.Generator
) -> tuple[NDArray, float]:
    """Losses, and the cases of each unit."""
    if kind == "cases":
        return _losses(generator, shape, margin + flips / 2, flips / 2), 1.0
    if kind == "list":
        lost, gained = round(shape[1] * (margin + flips / 2)), round(shape[1] * flips / 2)
        listed = np.repeat([1, -1, 0], [lost, gained, shape[1] - lost - gained]).astype(np.int8)
        return generator.permuted(np.tile(listed, (shape[0], 1)), axis=1), 1.0
    count = shape[1] // 4
    shared = _losses(generator, (shape[0], count), margin + flips / 2, flips / 2).astype(int)
    own = sum(_losses(generator, (shape[0], count), margin + flips / 2, flips / 2).astype(int) for _ in range(4))
    return np.where(generator.random((shape[0], count)) < 0.7, 4 * shared, own), 4.0


def planning_rows(which: str, *, quick: bool) -> Iterator[Row]:
    """The rows of the planner, of early stopping or of peeking."""
    if which == "planner":
        yield from planner_rates(*((6, 4_000) if quick else (50, 22_500)))
    elif which == "early":
        yield from early(*((60, (0.05,)) if quick else (2_000, MARGINS)))
    else:
        yield peeking(*((4_000, 300) if quick else (100_000, 1_000)))
