"""Is a fall of quality told from the noise of nights? Row `nights` of the decisions: simulated years.

Drawn nights are put to `judge_nights` in place of those of a store: what `qualgate trend` and each night say is its.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri
from scipy.stats import beta, binom

from qualgate.pipeline.nights.trends import judge_nights
from qualgate.stats.trend import HORIZON, SHIFTS, Trend
from qualgate.store.queries.nights import Watched
from tests.verification.goals import DECISIONS
from tests.verification.verdicts.tables import Rounds

ALPHA, POWER, DROP, NIGHTS_TO_FIND, YEARS = 0.05, 0.9, 0.03, 4, 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """How nights of one arm come about: of its cases a share wavers, each with a chance of its own to be right."""

    cases: int
    wavering: float  # share of the cases; the others are right (8 of 10) or wrong every night
    updates: int = 0  # times in a year at which the engine changes for good, for no reason that quality knows
    moved: float = 0.0  # share of the cases whose answers an update changes
    lucky: int = 1  # the approved run is the best of so many

    def chances(self, rng: np.random.Generator) -> NDArray:
        p = (rng.random(self.cases) < 0.8).astype(float)
        few = int(self.cases * self.wavering)
        p[:few] = rng.uniform(0.1, 0.9, few)
        return p

    def year(self, rng: np.random.Generator, nights: int = HORIZON) -> NDArray:
        """[1 + nights, cases] of 0 and 1; nothing that counts ever happens."""
        p = self.chances(rng)
        first = rng.random((self.lucky, self.cases)) < p
        x = np.empty((1 + nights, self.cases), int)
        x[0] = first[np.argmax(first.sum(axis=1))]
        updates = np.sort(rng.choice(np.arange(1, nights + 1), self.updates, replace=False))
        for night in range(1, nights + 1):
            if night in updates:
                p = _moved(p, self.moved, rng)
            x[night] = rng.random(self.cases) < p
        return x

    def fallen(self, rng: np.random.Generator, at: int, *, spread: bool) -> NDArray:
        """Quality falls by 3 points from night `at` on: cases are lost whole, or each becomes a little less likely."""
        p = self.chances(rng)
        x = (rng.random((at + NIGHTS_TO_FIND, self.cases)) < p).astype(int)
        lost = p.copy()
        if spread:
            lost = np.where(p > DROP * 2, p - DROP * self.cases / (p > DROP * 2).sum(), p)
        else:
            lost[rng.choice(np.flatnonzero(p == 1), int(self.cases * DROP), replace=False)] = 0.0
        x[at:] = rng.random((NIGHTS_TO_FIND, self.cases)) < lost
        return x


def _moved(p: NDArray, share: float, rng: np.random.Generator) -> NDArray:
    """Right cases become wrong and wrong ones right, each with a fair coin: quality moves by their chance alone."""
    lost = int(rng.binomial(int(len(p) * share), 0.5))
    gained = int(len(p) * share) - lost
    p = p.copy()
    right, wrong = np.flatnonzero(p == 1), np.flatnonzero(p == 0)
    p[rng.choice(right, lost, replace=False)] = 0.0
    p[rng.choice(wrong, gained, replace=False)] = 1.0
    return p


# Of a night's answers, 5 in 100 or fewer differ from the night before's: served arms. `lucky`: approved for its luck.
QUIET = {
    "1,000 cases, 5 % waver": World(cases=1_000, wavering=0.05),
    "400 cases, 20 % waver": World(cases=400, wavering=0.2),
    "400 cases, 10 % waver, approved the best of 10": World(cases=400, wavering=0.1, lucky=10),
}
EXACT = World(cases=400, wavering=0.0, updates=12, moved=0.05)  # a deterministic engine, updated every month
FALLS = {
    f"{cases:,} cases, {wavering:.0%} waver, night {at}{', spread' if spread else ''}": (
        World(cases=cases, wavering=wavering), at, spread,
    )
    for cases, wavering in ((400, 0.1), (1_000, 0.0), (1_000, 0.1), (1_000, 0.3))
    for at in (10, 100)
    for spread in (False, True)
    if wavering or not spread  # what never wavers cannot become a little less likely
}  # fmt: skip


def measure(quick: bool) -> tuple[Rounds, Rounds]:
    return measured(8, 30, 3) if quick else measured(YEARS, 400, 20)


def measured(years: int, tried: int, checked: int) -> tuple[Rounds, Rounds]:
    """years: of each world; tried: falls in each; checked: short years that the oracle computes as well."""
    rounds: Rounds = []
    for seed, (name, world) in enumerate(QUIET.items()):
        told = [len(_told(world.year(np.random.default_rng([24, seed, year]))).falls) for year in range(years)]
        rounds.append({"world": name, "years": years, "with_a_false_alarm": sum(map(bool, told)), "alarms": sum(told)})
    told = [len(_told(EXACT.year(np.random.default_rng([24, 9, year]))).falls) for year in range(years)]
    rounds.append({"world": "updates", "years": years, "with_a_false_alarm": sum(map(bool, told)), "alarms": sum(told)})
    for seed, (name, (world, at, spread)) in enumerate(FALLS.items()):
        found = [
            any(fall.detected >= at for fall in _told(world.fallen(np.random.default_rng([25, seed, one]), at,
                                                               spread=spread)).falls)
            for one in range(tried)
        ]  # fmt: skip
        rounds.append({"world": name, "falls": tried, "found": sum(found)})
    rounds.append({"oracle": _oracle_differs(checked)})
    return rounds, [_row(rounds, years, tried)]


def _row(rounds: Rounds, years: int, tried: int) -> dict[str, Any]:
    quiet, updated, falls = rounds[: len(QUIET)], rounds[len(QUIET)], rounds[len(QUIET) + 1 : -1]
    false = max(one["with_a_false_alarm"] / years for one in quiet)
    found = min(one["found"] / tried for one in falls)
    measured = {
        "years_with_a_false_alarm": false,
        "false_alarms_a_year_with_12_updates": updated["alarms"] / years,
        "least_found": found,
        "oracle_differs": rounds[-1]["oracle"],
    }
    # Not met is what the draws rule out: a goal that holds exactly is missed by them in 1 of 1,000.
    met = (
        all(binom.sf(one["with_a_false_alarm"] - 1, years, ALPHA) > 0.001 for one in quiet)
        and updated["alarms"] / years <= 1
        and all(beta.ppf(0.999, one["found"] + 1, tried - one["found"] or 1e-9) >= POWER for one in falls)
        and rounds[-1]["oracle"] < 1e-9
    )
    few = f"{years} of {YEARS:,} years, {tried} falls of a kind" if years < YEARS else None
    return DECISIONS.row("nights", measured, spread=sqrt(0.25 / tried), met=met, few=few)


def _told(x: NDArray) -> Trend:
    """What is said of an arm's one metric, night 0 being the approved run."""
    nights = tuple(map(str, range(len(x))))
    watched = Watched(
        arm="variant", metric="exact_match", run_ids=nights, began=nights, means=tuple(x.mean(axis=1)), approved_by="a",
        values=tuple(map(tuple, x.tolist())), weight=x.shape[1], other_cases=False,
    )  # fmt: skip
    return judge_nights([watched], ALPHA)[0].trend


# ---------------------------------------------------------------------------------------------- an independent oracle


def _oracle_differs(years: int) -> float:
    """The largest difference of p and of log R from what `night_by_night` comes to, relative where it is large."""
    worst = 0.0
    for year in range(years):
        rng = np.random.default_rng([26, year])
        x = replace(QUIET["400 cases, 20 % waver"], cases=60).year(rng, nights=25)
        if year % 2:  # more than two values: several answers to a case
            x = x + (rng.random(x.shape) < 0.3)
        p, evidence = night_by_night(x)
        said = _told(x)
        assert not said.falls, "the oracle does not begin anew"
        worst = max(worst, *(abs(a - b) / max(b, 1e-6) for a, b in zip(said.p, p, strict=True)),
                    *(abs(a - b) for a, b in zip(said.log_evidence, evidence, strict=True)))  # fmt: skip
    return worst


def night_by_night(x: NDArray) -> tuple[list[float], list[float]]:
    """p and log R by their definitions: the law of a sum grown case by case, R as a sum of products."""
    p = []
    for night in range(1, len(x)):
        law = {0: 1.0}
        for case in range(x.shape[1]):
            had = [int(value) for value in x[: night + 1, case]]
            grown: dict[int, float] = {}
            for total, chance in law.items():
                for value in had:
                    grown[total + value] = grown.get(total + value, 0.0) + chance / len(had)
            law = grown
        p.append(sum(chance for total, chance in law.items() if total <= x[night].sum()))
    evidence = []
    for night in range(1, len(p) + 1):
        total = 0.0
        for shift in SHIFTS:
            e = [exp(-shift * float(ndtri(min(one, 1.0))) - shift**2 / 2) for one in p[:night]]
            total += sum(np.prod(e[start:]) for start in range(night)) / len(SHIFTS)
        evidence.append(log(total) if total else -np.inf)
    return p, evidence
