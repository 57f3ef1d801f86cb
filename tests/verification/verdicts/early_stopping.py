"""Does stopping early save cases without lying? Rows `early.*` of the decisions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from math import ceil, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.early import Order, planned_looks, presumed_of
from qualgate.records import EarlyStop, Policy, Rule
from qualgate.stats.betting import Presumed, capital
from qualgate.stats.power import chance_to_block, pairs_to_approve
from tests.verification.verdicts.row import Row

MARGINS = (0.01, 0.02, 0.05)
DISAGREEMENTS = (0.01, 0.02, 0.05, 0.10, 0.15)  # of an identical variant; a loss adds lost answers to them
BETWEEN = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # times the margin lost
ALPHA, POWER = 0.05, 0.95
SEARCHED = 1_600  # paths by which the length of a list is found
DRAWN, FEWEST = 8_000_000, 100  # cases of a row's measurement at most, if that leaves so many paths
BETWEEN_DRAWN = 1_500_000  # of the truths between

Cell = dict[str, Any]


def measured_rows(*, quick: bool) -> tuple[Row, Row, Row]:
    return early(60, (0.05,)) if quick else early()


def early(
    paths: int = 6_000,
    margins: tuple[float, ...] = MARGINS,
    flips: tuple[float, ...] = DISAGREEMENTS,
    seed: int = 3,
) -> tuple[Row, Row, Row]:
    """`early.identical`, `early.twice`, `early.worst`: cases used, over those of the fixed exact test.

    Compared is what the gate does: on a list, at the looks planned for it, to the list's end where none settles. The
    fixed test has as many cases as it takes for power .95 at the cell's truth, and the list is the shortest on which
    stopping early has it too. Truths between cost more: the third row, on a list that has this power at both truths.
    """
    rounds = [_measured(*pair, paths, [seed, at]) for at, pair in enumerate(product(margins, flips))]
    rows = []
    for id, truth in (("early.identical", "identical"), ("early.twice", "twice")):
        cells = [one[truth] for one in rounds]
        saved = [cell["saved"] for cell in cells]
        measured = {
            "mean": float(np.mean(saved)),
            "of_all_cases": float(np.average(saved, weights=[cell["fixed"] for cell in cells])),
            "least": min(saved),
            "most": max(saved),
            "power": float(np.mean([cell["power"] for cell in cells])),
            "least_power": min(cell["power"] for cell in cells),
            "longer": float(np.mean([cell["list"] / cell["fixed"] for cell in cells])),
        }
        error = sqrt(sum(cell["error"] ** 2 for cell in cells)) / len(cells)
        met = measured["mean"] >= 0.4 if margins == MARGINS else None  # the goal is the mean over these
        rows.append(Row(id=id, measured=measured, spread=error, met=met, rounds=[] if rows else rounds))
    return rows[0], rows[1], _worst(rounds, paths, seed)


def _measured(margin: float, flips: float, paths: int, stream: list[int]) -> Cell:
    """Both truths of one margin and disagreement."""
    cell: Cell = {"margin": margin, "disagreement": flips}
    for truth, beyond in (("identical", False), ("twice", True)):
        fixed = fixed_pairs(margin, flips, beyond=beyond)
        units = shortest_list(margin, flips, min(SEARCHED, 4 * paths), beyond=beyond)
        count = min(paths, max(FEWEST, DRAWN // units))
        at = Truth(margin=margin, flips=flips, beyond=beyond)
        times = settled_at(at, units, count, [*stream, beyond])
        used = np.minimum(times, units) / fixed
        cell[truth] = {"fixed": fixed, "list": units, "power": float((times <= units).mean()),
                       "saved": 1 - float(used.mean()), "error": float(used.std() / sqrt(count)),
                       "paths": count}  # fmt: skip
    return cell | {"list": max(cell[truth]["list"] for truth in ("identical", "twice"))}


def _worst(cells: list[Cell], paths: int, seed: int) -> Row:
    """Truths between, on the cell's list: settled either way, or never."""
    rounds = []
    for cell in (one for one in cells if one["disagreement"] in (0.02, 0.05, 0.10)):
        margin, flips, units = cell["margin"], cell["disagreement"], cell["list"]
        fixed, count = cell["identical"]["fixed"], min(paths, max(FEWEST, BETWEEN_DRAWN // (4 * units)))
        for times in BETWEEN:
            stream = [seed, 99, len(rounds)]  # the same for both, so the same paths
            first = np.minimum(*(
                settled_at(Truth(margin=margin, flips=flips, beyond=beyond, loss=times * margin), units, count, stream)
                for beyond in (False, True)
            ))  # fmt: skip
            rounds.append({"margin": margin, "disagreement": flips, "loss": times * margin, "fixed": fixed,
                           "list": units, "mean": float(np.minimum(first, units).mean()) / fixed,
                           "settled": float((first <= units).mean())})  # fmt: skip
    worst = max(rounds, key=lambda one: one["mean"])
    return Row(id="early.worst", measured=worst, spread=None, met=True, rounds=rounds)


@lru_cache(maxsize=256)
def shortest_list(margin: float, flips: float, searched: int = SEARCHED, *, beyond: bool) -> int:
    """Cases on which 95 % are settled at this truth, as far as so many paths tell; the stakes rest on it."""

    def times(units: int, drawn: int) -> NDArray:
        paths = max(2 * FEWEST, min(searched, DRAWN // units))
        x = _paths(margin, flips, drawn, paths, [1, beyond], 2 * margin if beyond else 0.0)
        return np.concatenate([_crossed(part, margin, _presumed(margin, units), beyond=beyond) for part in x])

    units = ceil(1.45 * fixed_pairs(margin, flips, beyond=beyond))
    for _ in range(2):  # near it
        found = np.sort(times(units, ceil(1.5 * units)))
        units = int(found[ceil(POWER * len(found)) - 1])
    while (times(units, units) <= units).mean() < POWER:
        units = ceil(1.03 * units)
    return units


@dataclass(frozen=True, slots=True, kw_only=True)
class Truth:
    """What a variant is, and the direction that is to be settled. loss: by default nothing, or twice the margin."""

    margin: float
    flips: float
    beyond: bool
    loss: float | None = None

    @property
    def lost(self) -> float:
        return (2 * self.margin if self.beyond else 0.0) if self.loss is None else self.loss


def settled_at(truth: Truth, units: int, paths: int, stream: list[int]) -> NDArray:
    """[paths] cases that are in at the gate's own look that settles it in this direction; units + 1: none does."""
    looks = np.array(planned_looks(_order(units), _policy(truth.margin)))
    x = _paths(truth.margin, truth.flips, units, paths, stream, truth.lost)
    presumed = _presumed(truth.margin, units)
    times = np.concatenate([_crossed(part, truth.margin, presumed, beyond=truth.beyond) for part in x])
    at = looks[np.minimum(np.searchsorted(looks, times), len(looks) - 1)]
    return np.where(times <= units, at, units + 1)


def _order(units: int) -> Order:
    return tuple((("", "", case),) for case in range(units))


def _policy(margin: float) -> Policy:
    return Policy(rules=(Rule(metric="exact_match", max_drop=margin),), alpha=ALPHA, stop=EarlyStop(seed=0))


def _presumed(margin: float, units: int) -> Presumed:
    return presumed_of(_policy(margin), margin, np.ones(units))


def _paths(margin: float, flips: float, units: int, paths: int, stream: list[int], loss: float) -> Iterator[NDArray]:
    generator, step = np.random.default_rng(stream), max(1, 500_000 // units)
    for start in range(0, paths, step):
        yield losses(generator, (min(step, paths - start), units), flips / 2 + loss, flips / 2)


def _crossed(x: NDArray, margin: float, presumed: Presumed, *, beyond: bool) -> NDArray:
    """[paths] cases after which the capital is enough; one more than there are: never."""
    crossed = capital(x, margin, beyond=beyond, presumed=presumed) >= -log(ALPHA)
    return np.where(crossed.any(axis=1), crossed.argmax(axis=1) + 1, x.shape[1] + 1)


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


def losses(generator: np.random.Generator, shape: tuple[int, int], lost: float, gained: float) -> NDArray:
    """1 for a lost answer, −1 for a gained one. lost, gained: their chances."""
    u = generator.random(shape, dtype=np.float32)
    return (u < lost).astype(np.int8) - (u >= 1 - gained).astype(np.int8)
