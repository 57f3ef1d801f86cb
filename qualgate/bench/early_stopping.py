"""Does stopping early save cases without lying? Rows `early.*` of the decisions."""

from __future__ import annotations

from functools import lru_cache
from math import ceil, log, sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qualgate.bench.shape import Row
from qualgate.stats.power import chance_to_block, pairs_to_approve
from qualgate.stats.sequential import UNTOLD, Presumed, capital, presume

MARGINS = (0.01, 0.02, 0.05)
DISAGREEMENTS = (0.01, 0.02, 0.05, 0.10, 0.15)  # of an identical variant; a loss adds lost answers to them
ALPHA, POWER = 0.05, 0.95
LIST = 1.45  # times the fixed test's cases: a list on which stopping early settles an identical variant as often
TOLD_WEIGHT = 3.0  # changed answers that the true disagreement weighs as much as


def measured_rows(*, quick: bool) -> tuple[Row, Row, Row]:
    return early(60, (0.05,)) if quick else early()


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
        x = losses(generator, (count, most), flips / 2 + loss, flips / 2)
        crossed = capital(x, margin, beyond=beyond, presumed=presumed) >= -log(ALPHA)
        times.append(np.where(crossed.any(axis=1), crossed.argmax(axis=1) + 1, most + 1))
    return np.concatenate(times)


def losses(generator: np.random.Generator, shape: tuple[int, int], lost: float, gained: float) -> NDArray:
    """1 for a lost answer, −1 for a gained one. lost, gained: their chances."""
    u = generator.random(shape, dtype=np.float32)
    return (u < lost).astype(np.int8) - (u >= 1 - gained).astype(np.int8)
