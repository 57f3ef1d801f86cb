"""Four arms: a planted interaction is found, and none where there is none; a choice of arms errs no more than one.

P("worse") is summed over every table of a planted interaction: quantization is fine, speculation is fine, and both
together are two points worse. That the sums are the test's own is held by the tests of `stats.interaction`, which also
put drawn scores, clustered and graded ones, to it.
"""

from __future__ import annotations

from dataclasses import replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from qualgate.gate.decide import decide, exit_of
from qualgate.stats.interaction import chance_to_find
from tests.gate.four import ARMS, NAMES, evidence
from tests.gate.four import POLICY as IDENTICAL
from tests.verification.goals import DECISIONS

CASES, CHANGED, LOSS, ALPHA = 2500, 0.11, 0.02, 0.05
SEED = 20260106
POLICY = replace(IDENTICAL, four_arm=replace(ARMS, parity="lossy"))
SECONDS = dict(zip(NAMES, (10.0, 8.0, 7.0, 4.0), strict=True))  # of an answer
CHOICE_CASES, RIGHT = 200, 0.9  # the policy's margin is 5 points
GRID_N = (30, 59, 100, 200, 400, 1000, 2500)
GRID_CHANGED = (0.001, 0.01, 0.02, 0.05, 0.11, 0.15, 0.3, 1.0)


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rows `interaction.*`, exact either way."""
    found = chance_to_find(CASES, CHANGED, LOSS, ALPHA)
    measured = {
        "exact": found,
        "cases_for_0.9": next(n for n in range(2000, CASES + 1, 20) if chance_to_find(n, CHANGED, LOSS, ALPHA) >= 0.9),
        "by_changed": {f"{share:g}": chance_to_find(CASES, share, LOSS, ALPHA) for share in (0.02, 0.05, 0.08, 0.11)},
    }
    worst = max(chance_to_find(n, changed, 0.0, ALPHA) for n in GRID_N for changed in GRID_CHANGED)
    return [], [
        DECISIONS.row("interaction.power", measured, met=found >= 0.9),
        DECISIONS.row("interaction.silent", {"exact_worst": worst}, met=worst <= ALPHA),
    ]


def choice(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Row `choice.margin`: P(exit 0) of four arms where all three lose the margin, decided through the gate's one door.

    No arm may be served, so every 0 is wrong. Arms lose the same cases, others, or half and half.
    """
    draws, generator = 300 if quick else 2_000, np.random.default_rng(SEED + 2)
    cells = [(0.06, 0.01, 0.0), (0.06, 0.01, 0.5), (0.05, 0.0, 0.0), (0.05, 0.0, 0.5)][: 1 if quick else None]
    rates = {
        f"{lost:g} lost, {gained:g} gained, {overlap:g} alike": sum(
            exit_of(decide(evidence(_at_the_margin(lost, gained, overlap, generator), SECONDS), POLICY).verdicts) == 0
            for _ in range(draws)
        )
        / draws
        for lost, gained, overlap in cells
    }
    error = 3 * sqrt(ALPHA * (1 - ALPHA) / draws)
    measured = {"exit_0": rates, "draws_a_cell": draws}
    return [], [DECISIONS.row("choice.margin", measured, spread=error, met=max(rates.values()) <= ALPHA + error)]


def _at_the_margin(lost: float, gained: float, overlap: float, generator: Generator) -> dict[str, NDArray]:
    """0/1 of each case by arm: the baseline's, and three that lose and gain these shares of all cases.

    overlap: the chance that an arm's case changes as all arms' would, and not by a draw of its own.
    """
    base = generator.random(CHOICE_CASES) < RIGHT
    changes = np.where(base, lost / RIGHT, gained / (1 - RIGHT))
    common = generator.random(CHOICE_CASES)
    right = {NAMES[0]: base.astype(float)}
    for name in NAMES[1:]:
        own = np.where(generator.random(CHOICE_CASES) < overlap, common, generator.random(CHOICE_CASES))
        right[name] = (base ^ (own < changes)).astype(float)
    return right
