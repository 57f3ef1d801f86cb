"""Is the best moment to look any better than alpha allows? Row `peeking` of the decisions."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, sqrt

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.decide import decide
from qualgate.records import EarlyStop, Looked, Policy, Rule
from tests.verification.goals import DECISIONS
from tests.verification.verdicts.tables import ALPHA, METRIC, Cases, Rounds

CASES, WHOLE = 300, 100_000
KINDS = [("cases", 0.05, 0.10), ("list", 0.05, 0.10), ("clusters", 0.05, 0.05), ("list", 0.02, 0.05),
         ("clusters", 0.02, 0.10)]  # fmt: skip
KINDS += [("cases", margin, flips) for margin in (0.02, 0.10) for flips in (0.0, 0.02, 0.10)]
KINDS += [("cases", 0.05, flips) for flips in (0.0, 0.02, 0.50)] + [("cases", 0.02, 0.50)]


def measure(quick: bool) -> tuple[Rounds, Rounds]:
    return peeking(KINDS[:3], 2_000) if quick else peeking(KINDS, WHOLE)


def peeking(kinds: list[tuple[str, float, float]], schedules: int, seed: int = 17) -> tuple[Rounds, Rounds]:
    """Lists at the margin itself; an adversary looks after every case, and stops at the best moment for either word.

    `decide` does that of itself: of a list with `stop: early` the largest capital so far counts, so its one verdict on
    the whole list is the best of all moments before. kinds: cases drawn one by one, lists drawn without replacement
    whose loss is the margin exactly, and clusters of 4 that mostly answer alike; with margin and flips beside the loss.
    """
    rounds, each = [], ceil(schedules / (2 * len(kinds)))
    for cell, (kind, margin, flips) in enumerate(kinds):
        generator = np.random.default_rng([seed, cell])
        clustered = kind == "clusters"
        cases = Cases({"drawn": CASES}, fields=lambda arm, at, clustered=clustered: (
            {"cluster": f"c{at // 4}"} if clustered else {}))  # fmt: skip
        everything = Looked(questions=frozenset((*one, 0) for one in cases.ids), answers="", tests=("early, seed 0",))
        policy = Policy(rules=(Rule(metric=METRIC, max_drop=margin),), alpha=ALPHA, stop=EarlyStop(seed=0))
        words = []
        for _ in range(each):
            x = _at_the_margin(kind, margin, flips, generator)
            evidence = replace(cases.evidence(x >= 0, x <= 0), looks=(everything,))
            words.append(decide(evidence, policy).verdicts[0].word)
        rounds += [{"kind": kind, "margin": margin, "flips": flips, "word": word, "schedules": each,
                    "crossed": words.count(word) / each} for word in ("approve", "block")]  # fmt: skip
    worst = max(one["crossed"] for one in rounds)
    error = sqrt(ALPHA * (1 - ALPHA) / each)
    measured = {"crossed": float(np.mean([one["crossed"] for one in rounds])), "worst_cell": worst,
                "schedules": each * len(rounds)}  # fmt: skip
    few = f"{schedules:,} schedules of {len(kinds)} kinds" if schedules < WHOLE else None
    met = 0 < worst <= ALPHA + 3 * error
    return rounds, [DECISIONS.row("peeking", measured, spread=error, met=met, few=few)]


def _at_the_margin(kind: str, margin: float, flips: float, generator: np.random.Generator) -> NDArray:
    """Of each case 1: lost, −1: gained."""
    if kind == "cases":
        return losses(generator, (CASES,), margin + flips / 2, flips / 2)
    if kind == "list":
        lost, gained = round(CASES * (margin + flips / 2)), round(CASES * flips / 2)
        return generator.permutation(np.repeat([1, -1, 0], [lost, gained, CASES - lost - gained]))
    shared, own = (losses(generator, (CASES // 4, each), margin + flips / 2, flips / 2) for each in (1, 4))
    return np.where(generator.random((CASES // 4, 1)) < 0.7, shared, own).ravel()


def losses(generator: np.random.Generator, shape: tuple[int, ...], lost: float, gained: float) -> NDArray:
    """1 for a lost answer, −1 for a gained one. lost, gained: their chances."""
    u = generator.random(shape, dtype=np.float32)
    return (u < lost).astype(np.int8) - (u >= 1 - gained).astype(np.int8)
