"""Is the best moment to look any better than alpha allows? Row `peeking` of the decisions."""

from __future__ import annotations

from math import ceil, log, sqrt

import numpy as np
from numpy.typing import NDArray

from qualgate.stats.betting import capital, presume
from tests.verification.verdicts.early_stopping import ALPHA, losses
from tests.verification.verdicts.row import Row


def measured_rows(*, quick: bool) -> tuple[Row]:
    return (peeking(4_000, 300) if quick else peeking(),)


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
        return losses(generator, shape, margin + flips / 2, flips / 2), 1.0
    if kind == "list":
        lost, gained = round(shape[1] * (margin + flips / 2)), round(shape[1] * flips / 2)
        listed = np.repeat([1, -1, 0], [lost, gained, shape[1] - lost - gained]).astype(np.int8)
        return generator.permuted(np.tile(listed, (shape[0], 1)), axis=1), 1.0
    count = shape[1] // 4
    shared = losses(generator, (shape[0], count), margin + flips / 2, flips / 2).astype(int)
    own = sum(losses(generator, (shape[0], count), margin + flips / 2, flips / 2).astype(int) for _ in range(4))
    return np.where(generator.random((shape[0], count)) < 0.7, 4 * shared, own), 4.0
