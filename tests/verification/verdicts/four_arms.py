"""Rows `interaction.*` and `choice.margin`: four arms, judged by the gate's one door.

Of an interaction that is planted (quantization is fine, speculation is fine, both together are two points worse) every
table of changed cases that matters is put to `decide` once, and weighed by its exact chance. Where there is none, too.

Of a choice among arms that lose the margin no approval is right. Draws are too many for four arms each, and the gate's
word on a choice hangs on how surely each arm's quality is proven: so every arm's table is put to `decide` by itself at
alpha, alpha / 2 and alpha / 3, and of all draws that agree in this two are put to it as four arms and must get the same
answer. In six cells draws are put to it one by one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from qualgate.gate.decide import decide
from qualgate.records import Policy, Rule
from tests.gate.four import ARMS, NAMES, evidence
from tests.gate.four import POLICY as IDENTICAL
from tests.verification.goals import DECISIONS
from tests.verification.verdicts.tables import ALPHA, METRIC, Cases, Edges, Rounds, Words, scores_of

LOSSY = replace(IDENTICAL, four_arm=replace(ARMS, parity="lossy"))
ROUNDING, SEED = 1e-7, 20260106

# ------------------------------------------------------------------------------------------------------ interaction

CASES, CHANGED, LOSS = 2500, 0.11, 0.02
SILENT = {  # cases → shares of them that change
    30: (0.001, 0.02, 0.11, 0.3, 1.0), 59: (0.001, 0.02, 0.11, 0.3, 1.0), 100: (0.01, 0.05, 0.15, 0.3, 1.0),
    200: (0.01, 0.05, 0.15, 0.3), 400: (0.01, 0.05, 0.15, 0.3), 1000: (0.001, 0.01, 0.05), CASES: (0.001, 0.01),
}  # fmt: skip
QUICK = (30, 100)


def measure(quick: bool) -> tuple[Rounds, list[dict[str, Any]]]:
    """Rows `interaction.*`. quick: of fewer cases; and the chance to find as high as half of the tables prove it."""
    edges = {n: silent_from(n) for n in SILENT}
    bounds = {"forgotten": 1e-3, "step": 2} if quick else {"forgotten": 1e-5, "step": 1}
    found = 1 - edges[CASES].chance(LOSS, CHANGED, **bounds)
    rounds = [
        {"n": n, "changed": changed, "found": 1 - edges[n].chance(0.0, changed)}
        for n in (QUICK if quick else SILENT)
        for changed in SILENT[n]
    ]
    worst = max(cell["found"] for cell in rounds)
    few = f"of {QUICK[0]} and {QUICK[1]} cases" if quick else None
    return rounds, [
        DECISIONS.row("interaction.power", {"at_least": found}, met=found >= 0.9),
        DECISIONS.row("interaction.silent", worst, met=worst <= ALPHA + ROUNDING, few=few),
    ]


def silent_from(n: int) -> Edges:
    """The fewest cases that gain by the two changes together, beside so many that lose, where no interaction is found.

    A case that loses is wrong with both changes alone, and one that gains with speculation alone.
    """
    cases = Cases({"drawn": n}, arms=NAMES)

    def silent(lost: int, gained: int) -> bool:
        speculation, both = scores_of(n, lost, gained)
        judged = decide(cases.evidence(np.ones(n), np.ones(n), speculation, both), LOSSY).verdicts[-1].four_arm
        assert judged is not None
        (of_scores,) = [one for one in judged.interactions if one.metric == METRIC]
        return not of_scores.found

    return Edges(n, silent)


# ----------------------------------------------------------------------------------------------------------- choice

DRAWS, TOGETHER, WHOLE = 20_000, 2_000, 500
DECIDED = 2  # draws of a kind that are put to the gate as four arms
RIGHT = 0.9  # of the baseline's answers
SECONDS = dict(zip(NAMES, (10.0, 5.0, 2.4, 1.0), strict=True))  # of an answer: each arm is surely worth it
PARTS = (1, 2, 3)  # of alpha: what is proven of an arm at alpha / 1, / 2, / 3
SIZES = ((60, 0.10), (200, 0.05), (400, 0.05), (400, 0.03), (1000, 0.02))  # cases, max_drop
QUANTIZATION, SPECULATION, BOTH = NAMES[1:]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """alike: the chance that an arm's case changes as all arms' would, and not by a draw of its own; None: drafting
    changes no answer, so both have quantization's. at_margin: arms that lose the margin; the others lose nothing."""

    n: int
    margin: float
    gained: float
    alike: float | None = 0.0
    at_margin: tuple[str, ...] = NAMES[1:]

    @property
    def policy(self) -> Policy:
        kind = IDENTICAL if self.alike is None else LOSSY
        return replace(kind, rules=(Rule(metric=METRIC, max_drop=self.margin),))

    def draw(self, draws: int, generator: Generator) -> tuple[NDArray, NDArray]:
        """(scores of each arm, the baseline first: [4, draws, n]; (lost, gained) of the three: [draws, 3, 2])."""
        shape = draws, self.n
        base, common = generator.random(shape) < RIGHT, generator.random(shape)
        right = [base]
        for name in NAMES[1:]:
            lost = self.gained + self.margin * (name in self.at_margin)
            if self.alike is None and name != QUANTIZATION:
                right.append(base if name == SPECULATION else right[1])
                continue
            own = np.where(generator.random(shape) < (self.alike or 0.0), common, generator.random(shape))
            right.append(base ^ (own < np.where(base, lost / RIGHT, self.gained / (1 - RIGHT))))
        counts = [((base & ~arm).sum(axis=1), (arm & ~base).sum(axis=1)) for arm in right[1:]]
        return np.stack(right), np.array(counts).transpose(2, 0, 1)


def cells() -> list[Cell]:
    """Sixty."""
    found = []
    for n, margin in SIZES:
        found += [Cell(n=n, margin=margin, gained=g, alike=a) for g in (0.0, 0.01, 0.05) for a in (0.0, 0.5, 0.9)]
        found += [
            Cell(n=n, margin=margin, gained=0.01, at_margin=(BOTH,)),
            Cell(n=n, margin=margin, gained=0.01, at_margin=(QUANTIZATION, SPECULATION)),
            Cell(n=n, margin=margin, gained=0.01, at_margin=(QUANTIZATION, BOTH), alike=None),
        ]
    return found


def choice(quick: bool) -> tuple[Rounds, list[dict[str, Any]]]:
    """Row `choice.margin`."""
    chosen = [cells()[at] for at in (0, 11, 12, 16)] if quick else cells()
    judges = {size: Judge(*size) for size in SIZES}
    rounds = [judges[cell.n, cell.margin].rates(cell, DRAWS, number) for number, cell in enumerate(chosen)]
    one_by_one = chosen[:1] if quick else [chosen[at] for at in (0, 1, 12, 21, 24, 36)]
    whole = [_one_by_one(cell, 100 if quick else WHOLE, number) for number, cell in enumerate(one_by_one)]
    sound = [Cell(n=n, margin=margin, gained=margin / 2, at_margin=()) for n, margin in SIZES[: 2 if quick else None]]
    power = [judges[cell.n, cell.margin].rates(cell, DRAWS, 0) for cell in sound]
    answers = [one for judge in judges.values() for one in judge.answers.values()]
    measured = {
        "exit_0_at_the_margin": max(one["wrong"] for one in rounds),
        "one_by_one": max(one["wrong"] for one in whole),
        "identical_approved": {f"{one['n']} at {one['margin']:g}": one["approved"] for one in power},
        "cells": len(rounds),
        "four_arms_decided": sum(map(len, answers)),
        "otherwise": sum(len(set(one)) > 1 for one in answers),
    }
    met = not measured["otherwise"] and all(
        cell["wrong"] <= ALPHA + 3 * sqrt(ALPHA * (1 - ALPHA) / cell["draws"]) for cell in [*rounds, *whole]
    )
    few = f"{len(rounds)} of {len(cells())} cells" if quick else None
    return rounds + power + whole, [DECISIONS.row("choice.margin", measured, met=met, few=few)]


class Judge:
    """The answers of the gate on draws of so many cases under one rule."""

    def __init__(self, n: int, margin: float) -> None:
        self.words = [Words(n, margin, ALPHA / part) for part in PARTS]
        self.answers = defaultdict[tuple[Policy, tuple[int, ...]], list[str]](list)

    def kinds(self, counts: NDArray) -> NDArray:
        """[draws, 4] of each arm at how many parts of alpha its table is approved by itself; and whether quantization
        may lose nothing, for else speculation is the simpler change."""
        edges = [words.approved for words in self.words]
        proven = sum(counts[..., 1] >= _each(counts[..., 0], edge) for edge in edges)
        lost, gained = counts[:, :1, 0], counts[:, :1, 1]
        return np.hstack([proven, gained >= _each(lost, self.words[0].may_lose_nothing)])

    def rates(self, cell: Cell, draws: int, seed: int) -> dict[str, Any]:
        """How often some arm is approved, and how often one that loses the margin."""
        generator, chosen = np.random.default_rng([SEED, seed]), Counter[str]()
        for _ in range(draws // TOGETHER):
            right, counts = cell.draw(TOGETHER, generator)
            kinds, first, how_often = np.unique(self.kinds(counts), axis=0, return_index=True, return_counts=True)
            for kind, at, often in zip(map(tuple, kinds.tolist()), first, how_often, strict=True):
                answers = self.answers[cell.policy, kind]
                if len(answers) < DECIDED:
                    answers.append(approved(cell, right[:, at]))
                chosen[answers[0]] += int(often)
        return _told(cell, chosen, draws)


def _each(lost: NDArray, edges: Edges) -> NDArray:
    found, of = np.unique(lost, return_inverse=True)
    return np.array([edges[int(row)] for row in found])[of].reshape(lost.shape)


def _one_by_one(cell: Cell, draws: int, seed: int) -> dict[str, Any]:
    right, _ = cell.draw(draws, np.random.default_rng([SEED, 1000 + seed]))
    return _told(cell, Counter(approved(cell, right[:, at]) for at in range(draws)), draws)


def _told(cell: Cell, chosen: Counter[str], draws: int) -> dict[str, Any]:
    return {
        "n": cell.n, "margin": cell.margin, "gained": cell.gained, "alike": cell.alike,
        "at_margin": list(cell.at_margin), "draws": draws, "approved": 1 - chosen[""] / draws,
        "wrong": sum(chosen[name] for name in cell.at_margin) / draws,
    }  # fmt: skip


def approved(cell: Cell, right: NDArray) -> str:
    """The arm that may be served, of draws [4, n]; "" where the exit is not 0."""
    decided = decide(evidence(dict(zip(NAMES, right.astype(float), strict=True)), SECONDS), cell.policy)
    answer = decided.verdicts[-1].four_arm
    assert answer is not None
    return answer.choice if decided.exit == 0 else ""
