"""Does the gate tell a slow arm from a slow machine? Rows `times.errors` and `times.power`.

The machine is drawn, not the gate's idea of it: its speed is a stationary AR(1) series over the batches in the order in
which they ran, on a log scale, a level scale or as a Pareto tail of index 1.5, which both arms meet; or the tail is the
variant's own, case by case. Batches take turns by a coin for each pair. Truths: exactly the limit, where neither
verdict may come more often than alpha, and no difference, which is to be approved.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from qualgate.stats import percentiles
from qualgate.stats.latency import SumsOfTurns
from tests.verification.verdicts.row import Row

ALPHA, LIMIT, ROWS = 0.05, 1.10, 8  # rows: cases of a batch
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

    def decided(self, generator: np.random.Generator) -> tuple[bool, bool]:
        """(approved, blocked) in one draw, by the gate's own tests."""
        base, other = drawn(self, generator)
        cases, turns = np.arange(base.size), np.repeat(np.arange(self.turns), ROWS)
        if self.percentile is None:
            sums = SumsOfTurns(base, other, turns, cases, LIMIT, ALPHA)
            return sums.p_below(LIMIT) <= ALPHA, sums.p_above(LIMIT) <= ALPHA
        asked = base, other, turns, self.percentile, LIMIT, ALPHA
        return percentiles.p_below(*asked) <= ALPHA, percentiles.p_above(*asked) <= ALPHA


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


def measured_rows(*, quick: bool) -> tuple[Row, Row]:
    counts = (60,) if quick else (24, 60, 300)
    errors = [Cell(speed=speed, rho=rho, turns=turns) for speed in SPEEDS for rho in RHO for turns in counts]
    errors += [Cell(speed="own", rho=0.0, turns=turns) for turns in counts]
    errors += [
        Cell(speed=speed, rho=rho, turns=60, percentile=50) for speed in ("log", "pareto") for rho in (0.0, 0.95)
    ]
    if not quick:
        errors += [Cell(speed="log", rho=rho, turns=246, percentile=95) for rho in RHO]
    power = [Cell(speed=speed, rho=rho, turns=60, truth=1.0) for speed in ("log", "level") for rho in RHO]
    return _errors([_rates(cell, quick) for cell in errors]), _power([_rates(cell, quick) for cell in power])


def _rates(cell: Cell, quick: bool) -> dict[str, Any]:
    """A draw of a percentile is judged at each of its levels, so of those there are fewer."""
    draws = (100 if quick else 4_000) // (1 if cell.percentile is None else 10)
    generator = np.random.default_rng([20260117, cell.turns, int(100 * cell.rho)])
    decided = np.array([cell.decided(generator) for _ in range(draws)], float).mean(axis=0)
    return {
        "speed": cell.speed, "rho": cell.rho, "turns": cell.turns, "truth": cell.truth, "percentile": cell.percentile,
        "draws": draws, "approved": float(decided[0]), "blocked": float(decided[1]),
    }  # fmt: skip


def _errors(rounds: list[dict[str, Any]]) -> Row:
    worst = max(max(one["approved"], one["blocked"]) for one in rounds)
    least = min(one["draws"] for one in rounds)
    met = all(max(one["approved"], one["blocked"]) <= ALPHA + 3 * _error(ALPHA, one["draws"]) for one in rounds)
    return Row(id="times.errors", measured=worst, spread=[_error(ALPHA, least)] * 2, met=met, rounds=rounds)


def _power(rounds: list[dict[str, Any]]) -> Row:
    rates = [one["approved"] for one in rounds]
    met = all(one["approved"] >= 0.9 - 3 * _error(0.9, one["draws"]) for one in rounds)
    return Row(id="times.power", measured=min(rates), spread=[min(rates), max(rates)], met=met, rounds=rounds)


def _error(rate: float, draws: int) -> float:
    return sqrt(rate * (1 - rate) / draws)
