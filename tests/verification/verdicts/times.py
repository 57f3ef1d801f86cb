"""Does the gate tell a slow arm from a slow machine? Rows `times.errors` and `times.power`.

The machine is drawn, not the gate's idea of it: its speed is a stationary AR(1) series over the batches in the order in
which they ran, on a log scale, a level scale or as a Pareto tail of index 1.5, which both arms meet; or the tail is the
variant's own, case by case. Batches take turns by a coin for each pair. Truths: exactly the limit, where neither
verdict may come more often than alpha, and no difference, which is to be approved. Each draw is the evidence of a run,
put to `decide`; at the limit all draws that a standard error or more parts from it are, and one in ten of the others,
which counts for ten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from qualgate.gate.decide import decide
from qualgate.records import Policy, Rule, RunEvidence
from tests.verification.goals import DECISIONS
from tests.verification.verdicts.tables import ALPHA, METRIC, Cases, Rounds, rate

LIMIT, ROWS = 1.10, 8  # rows: cases of a batch
RHO = (0.0, 0.5, 0.8, 0.95)
SPEEDS: dict[str, Callable[[NDArray], NDArray]] = {
    "log": lambda z: np.exp(0.1 * z),
    "level": lambda z: np.maximum(1 + 0.1 * z, 0.05),
    "pareto": lambda z: (1 - np.minimum(ndtr(z), 1 - 1e-12)) ** (-1 / 1.5),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is drawn and what is asked of it."""

    speed: str  # of SPEEDS; "own": a Pareto tail of the variant's cases, on a steady machine
    rho: float
    turns: int
    truth: float = LIMIT
    percentile: float | None = None

    def draw(self, generator: np.random.Generator) -> tuple[bool, Callable[[], NDArray]]:
        """(does a standard error part it from the limit?, what decides: is it approved, is it blocked)."""
        seconds = drawn(self, generator)
        base, other = (of_arm.reshape(self.turns, ROWS).sum(axis=1) for of_arm in seconds)
        off = other - LIMIT * base
        doubtful = self.truth != LIMIT or self.percentile is not None or abs(off.mean()) >= off.std() / sqrt(self.turns)
        return bool(doubtful), lambda: self.decided(*seconds, generator)

    def decided(self, base: NDArray, other: NDArray, generator: np.random.Generator) -> NDArray:
        # Supporting: alone in its tier, so no correction for another rule makes its errors rarer.
        rule = Rule(metric="latency.e2e", max_ratio=LIMIT, percentile=self.percentile, tier="supporting")
        policy = Policy(rules=(Rule(metric=METRIC, max_drop=0.1), rule), alpha=ALPHA)
        verdict = decide(evidence(base, other, generator.random(self.turns) < 0.5), policy).verdicts[0]
        status = verdict.comparisons[-1].status
        assert verdict.word == ("review" if status == "broken" else "approve"), verdict
        return np.array([status == "proven", status == "broken"], float)


def evidence(base: NDArray, other: NDArray, first: NDArray) -> RunEvidence:
    """A run that took turns: `ROWS` cases of the baseline, then the same of the variant, or the other way round.

    base, other: [cases] seconds. first: [turns] whether the baseline came first.
    """
    seconds, right = {"baseline": base.tolist(), "variant": other.tolist()}, np.ones(len(base))

    def timed(arm: str, at: int) -> dict[str, Any]:
        began = 2.0 * (at // ROWS) + (first[at // ROWS] != (arm == "baseline"))
        return {"values": {METRIC: 1.0, "latency.e2e": seconds[arm][at]}, "job": at // ROWS, "began": began}

    return Cases({"drawn": len(base)}, fields=timed).evidence(right, right)


def drawn(cell: Cell, generator: np.random.Generator) -> tuple[NDArray, NDArray]:
    """Seconds of each case, [turns x ROWS]: the baseline's and the variant's."""
    if cell.speed == "own":
        tail = generator.random(cell.turns * ROWS) ** (-1 / 1.5)  # 3 on average
        return np.full(tail.size, 3 / cell.truth), tail
    series = machine(2 * cell.turns, cell.rho, generator)
    slots = SPEEDS[cell.speed](series).reshape(cell.turns, 2)
    first = generator.random(cell.turns) < 0.5
    base, other = np.where(first, slots.T, slots.T[::-1])
    return np.repeat(base, ROWS), cell.truth * np.repeat(other, ROWS)


def machine(count: int, rho: float, generator: np.random.Generator) -> NDArray:
    """A stationary AR(1) series of standard normals."""
    shocks, series = generator.standard_normal(count), np.empty(count)
    series[0] = shocks[0]
    for at in range(1, count):
        series[at] = rho * series[at - 1] + sqrt(1 - rho * rho) * shocks[at]
    return series


def measure(quick: bool) -> tuple[Rounds, list[dict[str, Any]]]:
    """(rounds, rows `times.errors` and `times.power`)."""
    counts = (60,) if quick else (24, 60, 300)
    rhos = RHO[::3] if quick else RHO
    errors = [Cell(speed=speed, rho=rho, turns=turns) for speed in SPEEDS for rho in rhos for turns in counts]
    errors += [Cell(speed="own", rho=0.0, turns=turns) for turns in counts]
    errors += [Cell(speed="log", rho=rho, turns=60, percentile=50) for rho in (0.0, 0.95)]
    if not quick:
        errors += [Cell(speed="pareto", rho=0.95, turns=60, percentile=50)]
        errors += [Cell(speed="log", rho=rho, turns=246, percentile=95) for rho in (0.0, 0.95)]
    power = [Cell(speed=speed, rho=rho, turns=60, truth=1.0) for speed in ("log", "level") for rho in rhos]
    at_limit, equal = [_rates(cell, quick) for cell in errors], [_rates(cell, quick) for cell in power]
    wrong, approved = [max(one["approved"], one["blocked"]) for one in at_limit], [one["approved"] for one in equal]
    held = all(most <= ALPHA + 3 * _error(ALPHA, one["draws"]) for most, one in zip(wrong, at_limit, strict=True))
    enough = all(one["approved"] >= 0.9 - 3 * _error(0.9, one["draws"]) for one in equal)
    rounds = at_limit + equal
    few = f"80 of each of {len(rounds)} cells" if quick else None
    rows = [
        DECISIONS.row("times.errors", max(wrong), spread=[min(wrong), max(wrong)], met=held, few=few),
        DECISIONS.row("times.power", min(approved), spread=[min(approved), max(approved)], met=enough, few=few),
    ]
    return rounds, rows


def _rates(cell: Cell, quick: bool) -> dict[str, Any]:
    """At the limit errors are rare and need many draws; those of a percentile take long."""
    often = 1_000 if cell.turns < 300 else 400
    draws = 80 if quick else often if cell.truth == LIMIT and cell.percentile is None else 200
    generator = np.random.default_rng([20260117, cell.turns, int(100 * cell.rho)])
    approved, blocked = rate(draws, lambda: cell.draw(generator)).tolist()
    return {
        "speed": cell.speed, "rho": cell.rho, "turns": cell.turns, "truth": cell.truth, "percentile": cell.percentile,
        "draws": draws, "approved": approved, "blocked": blocked,
    }  # fmt: skip


def _error(rate: float, draws: int) -> float:
    return sqrt(rate * (1 - rate) / draws)
