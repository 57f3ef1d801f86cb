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
HELD_OUT = ((0.015, 0.04), (0.03, 0.07))  # margins and disagreements that no constant of the test was chosen on
BETWEEN = (0.25, 0.5, 0.75, 1.0, 1.25, 1.5)  # times the margin lost
ALPHA, POWER = 0.05, 0.95
TOLD_WEIGHT = 3.0  # changed answers that the true disagreement weighs as much as
SEARCHED = 1_600  # paths by which the length of a list is found
DRAWN, BESIDE, FEWEST = 8_000_000, 1_500_000, 100  # cases of a row's own measurement, and of one beside it, at most,
# if that leaves so many paths

Cell = dict[str, Any]


def measured_rows(*, quick: bool) -> tuple[Row, Row, Row]:
    return early(60, (0.05,), held_out=False) if quick else early()


def early(
    paths: int = 6_000,
    margins: tuple[float, ...] = MARGINS,
    flips: tuple[float, ...] = DISAGREEMENTS,
    seed: int = 3,
    *,
    held_out: bool = True,
) -> tuple[Row, Row, Row]:
    """`early.identical`, `early.twice`, `early.worst`: cases used, over those of the fixed exact test.

    Compared is what the gate does: on a list, at the looks planned for it, to the list's end where none settles. The
    fixed test has as many cases as it takes for power .95 at the cell's truth, and the list is the shortest on which
    stopping early has it too ("mean"). Beside it: one list on which it has this power at both truths, which an
    identical variant would not need ("both"; "of_both": compared with a fixed test that has it at both, too), a list
    ten times as long, which tells the stakes little ("long"), and an oracle that tells them the true disagreement
    ("told"). Truths between cost more: the third row.
    """
    rounds = [_measured(*pair, paths, [seed, at]) for at, pair in enumerate(product(margins, flips))]
    others = (
        [_measured(*pair, paths, [seed, 50 + at]) for at, pair in enumerate(product(*HELD_OUT))] if held_out else []
    )
    rows = []
    for id, truth in (("early.identical", "identical"), ("early.twice", "twice")):
        cells, beside = [one[truth] for one in rounds], [one[truth] for one in others]
        saved = [cell["own"]["saved"] for cell in cells]
        measured = {
            "mean": float(np.mean(saved)),
            **{how: _mean(cells, how, "saved") for how in ("both", "long", "told")},
            "of_both": float(np.mean([1 - (1 - cell["both"]["saved"]) * cell["fixed"] / one["fixed"]
                                      for one, cell in zip(rounds, cells, strict=True)])),
            "held_out": _mean(beside, "own", "saved"),
            "held_out_both": _mean(beside, "both", "saved"),
            "of_all_cases": float(np.average(saved, weights=[cell["fixed"] for cell in cells])),
            "least": min(saved),
            "most": max(saved),
            "power": _mean(cells, "own", "power"),
            "least_power": min(cell["own"]["power"] for cell in cells),
            "longer": _mean(cells, "own", "longer"),
            "longer_both": _mean(cells, "both", "longer"),
        }  # fmt: skip
        error = sqrt(sum(cell["own"]["error"] ** 2 for cell in cells)) / len(cells)
        told = [] if rows else [{**one, "held_out": one in others} for one in (*rounds, *others)]
        met = measured["mean"] >= 0.4 if margins == MARGINS else None  # the goal is the mean over these
        rows.append(Row(id=id, measured=measured, spread=error, met=met, rounds=told))
    return rows[0], rows[1], _worst(rounds, paths, seed)


def _mean(cells: list[Cell], how: str, what: str) -> float | None:
    return float(np.mean([cell[how][what] for cell in cells])) if cells else None


def _measured(margin: float, flips: float, paths: int, stream: list[int]) -> Cell:
    """Both truths of one margin and disagreement."""
    own = {beyond: shortest_list(margin, flips, min(SEARCHED, 4 * paths), beyond=beyond) for beyond in (False, True)}
    fixed_at = {beyond: fixed_pairs(margin, flips, beyond=beyond) for beyond in (False, True)}
    both = max(own.values())
    cell: Cell = {"margin": margin, "disagreement": flips, "list": both, "fixed": max(fixed_at.values())}
    for truth, beyond in (("identical", False), ("twice", True)):
        fixed = fixed_at[beyond]
        told = Presumed(disagreement=flips, weight=TOLD_WEIGHT)
        cell[truth] = {"fixed": fixed}
        for how, units, presumed in (
            ("own", own[beyond], None), ("both", both, None), ("long", 10 * both, None), ("told", own[beyond], told)
        ):  # fmt: skip
            most = 3 * fixed if how == "long" else units
            count = min(paths, max(FEWEST, (DRAWN if how == "own" else BESIDE) // most))
            at = Truth(margin=margin, flips=flips, beyond=beyond)
            times = settled_at(at, units, count, [*stream, beyond], presumed=presumed, most=most)
            used = np.minimum(times, units) / fixed
            cell[truth][how] = {"list": units, "longer": units / fixed, "power": float((times <= units).mean()),
                                "saved": 1 - float(used.mean()), "error": float(used.std() / sqrt(count)),
                                "paths": count}  # fmt: skip
    return cell


def _worst(cells: list[Cell], paths: int, seed: int) -> Row:
    """Truths between, on the cell's list: settled either way, or never."""
    rounds = []
    for cell in (one for one in cells if one["disagreement"] in (0.02, 0.05, 0.10)):
        margin, flips, units = cell["margin"], cell["disagreement"], cell["list"]
        fixed, count = cell["identical"]["fixed"], min(paths, max(FEWEST, BESIDE // (4 * units)))
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


def settled_at(
    truth: Truth,
    units: int,
    paths: int,
    stream: list[int],
    *,
    presumed: Presumed | None = None,
    most: int | None = None,
) -> NDArray:
    """[paths] cases that are in at the gate's own look that settles it in this direction; units + 1: none does.

    presumed: other than the list does. most: cases that are drawn of the list; what is not settled by them is taken to
    be at their end.
    """
    margin, most = truth.margin, min(most or units, units)
    looks = np.array(planned_looks(_order(units), _policy(margin)))
    looks = looks[: np.searchsorted(looks, most) + 1]
    presumed = presumed or _presumed(margin, units)
    x = _paths(margin, truth.flips, most, paths, stream, truth.lost)
    times = np.concatenate([_crossed(part, margin, presumed, beyond=truth.beyond) for part in x])
    at = looks[np.minimum(np.searchsorted(looks, times), len(looks) - 1)]
    return np.where(times <= most, at, units + 1 if most == units else most)


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
