"""Errors on clustered cases, drawn: each draw is the evidence of a run, with a cluster for each case, put to `decide`.

All draws that could be wrong are put: of an approval at a loss of the margin those that lost less than it by a standard
error or more, of a block those that lost more. Of the others one in ten is, and counts for ten.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qualgate.gate.decide import decide
from qualgate.records import Policy, Rule
from qualgate.stats.paired.compare import MIN_CLUSTERS
from tests.verification.verdicts.tables import ALPHA, METRIC, Cases, rate

RIGHT = 0.85  # of the baseline's answers
Draw = np.random.Generator
Truth = Callable[["Cell", NDArray, Draw], tuple[NDArray, NDArray]]  # labels of cases → scores before and after


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """sizes: dealt to the clusters in turn. `limit` is the rule's, and what is truly lost. noise: disagreement beside
    the loss."""

    clusters: int
    sizes: tuple[int, ...]
    limit: float
    noise: float
    truth: Truth
    word: str = "approve"  # which is wrong at this truth
    relative: bool = False
    metric: str = METRIC

    @property
    def each(self) -> NDArray:
        return np.array([self.sizes[index % len(self.sizes)] for index in range(self.clusters)])

    @property
    def rule(self) -> Rule:
        limits = {"max_relative_drop" if self.relative else "max_drop": self.limit}
        return Rule(metric=self.metric, **limits)  # type: ignore[arg-type]


def alike(share: float, cell: Cell, labels: NDArray, g: Draw) -> tuple[NDArray, NDArray]:
    """A share of each cluster's cases flip as one."""
    u = np.where(g.random(len(labels)) < share, g.random(cell.clusters)[labels], g.random(len(labels)))
    return _changed(np.where(u < cell.limit + cell.noise / 2, -1, np.where(u < cell.limit + cell.noise, 1, 0)), g)


def wholly(part: float, cell: Cell, labels: NDArray, g: Draw, *, by_size: bool = False) -> tuple[NDArray, NDArray]:
    """All loss is by clusters that lose `part` of their cases. For the block: clusters that gain as much hide half of a
    loss that all others share. by_size: the large ones fail, as often as hides the loss best."""
    share = cell.limit / part
    chance = _hiding(cell.each, share) if by_size else np.full(cell.clusters, share)
    struck, fell = (g.random(cell.clusters) < chance)[labels], g.random(len(labels)) < part
    shared = 0.0 if cell.word == "approve" else 2 * cell.limit / (1 - share)
    u = g.random(len(labels))
    even = np.where(u < cell.noise / 2 + shared, -1, np.where(u < cell.noise + shared, 1, 0))
    return _changed(np.where(struck, fell if cell.word == "block" else -1 * fell, even), g)


def of_the_rate(cell: Cell, labels: NDArray, g: Draw) -> tuple[NDArray, NDArray]:
    """A share of clusters is lost as a whole, which is that share of the baseline's rate."""
    before, u = g.random(len(labels)) < RIGHT, g.random(len(labels))
    flipped = u < np.where(before, cell.noise / 2 / RIGHT, cell.noise / 2 / (1 - RIGHT))
    return before, (before ^ flipped) & ~(g.random(cell.clusters) < cell.limit)[labels]


def half_points(cell: Cell, labels: NDArray, g: Draw) -> tuple[NDArray, NDArray]:
    """Scores between 0 and 1: some clusters lose half a point on every case, the others move evenly."""
    moves = np.clip(g.normal(0, cell.noise, len(labels)), -0.2, 0.2)
    return np.full(len(labels), 0.75), 0.75 + np.where((g.random(cell.clusters) < 2 * cell.limit)[labels], -0.5, moves)


def _changed(change: NDArray, g: Draw) -> tuple[NDArray, NDArray]:
    before = np.where(change == 0, g.random(len(change)) < RIGHT, change < 0)
    return before, before + change


def _hiding(each: NDArray, share: float) -> NDArray:
    """[clusters] chances to fail as a whole by which this share of cases fails and none of them is most often seen to:
    1 − c / size of those larger than c, c found by bisection."""
    low, high = 0.0, float(each.max())
    for _ in range(100):
        c = (low + high) / 2
        low, high = (c, high) if np.maximum(each - c, 0).sum() > share * each.sum() else (low, c)
    return np.maximum(1 - high / each, 0.0)


def wrongly(cell: Cell, draws: int, generator: Draw) -> dict[str, Any]:
    """How often the word that is wrong at this truth comes."""
    labels = np.repeat(np.arange(cell.clusters), cell.each)
    cases, policy = _cases(cell, labels), Policy(rules=(cell.rule,), alpha=ALPHA)

    def draw() -> tuple[bool, Callable[[], bool]]:
        before, after = cell.truth(cell, labels, generator)
        doubtful = _could_be_wrong(cell, after - 1.0 * before, labels, before.mean())
        return doubtful, lambda: decide(cases.evidence(before, after), policy).verdicts[0].word == cell.word

    return {
        "clusters": cell.clusters, "sizes": sorted(set(cell.sizes)), "limit": cell.limit, "noise": cell.noise,
        "relative": cell.relative, "metric": cell.metric, "draws": draws, "error": sqrt(ALPHA * (1 - ALPHA) / draws),
        "approve": 0.0, "block": 0.0, cell.word: rate(draws, draw),
    }  # fmt: skip


def _could_be_wrong(cell: Cell, change: NDArray, labels: NDArray, rate: float) -> bool:
    off = np.bincount(labels, change - change.mean())
    error = np.sqrt((off**2).sum()) / len(change)
    spare = change.mean() + cell.limit * (rate if cell.relative else 1.0)
    return (spare if cell.word == "approve" else -spare) >= error


def _cases(cell: Cell, labels: NDArray) -> Cases:
    return Cases({"drawn": len(labels)}, metric=cell.metric, fields=lambda arm, at: {"cluster": f"c{labels[at]}"})


def word_of(cell: Cell, before: NDArray, after: NDArray, labels: NDArray) -> str:
    """The gate's word on a run with these scores."""
    policy = Policy(rules=(cell.rule,), alpha=ALPHA)
    return decide(_cases(cell, labels).evidence(before, after), policy).verdicts[0].word


def few_clusters_undecided() -> bool:
    """An identical variant is undecided with fewer passages than `MIN_CLUSTERS`, and approved with enough of them."""

    def word(count: int) -> str:
        cell = Cell(clusters=count, sizes=(10,), limit=0.15, noise=0.0, truth=half_points)
        right = np.arange(10 * count) % 10 > 0
        return word_of(cell, right, right, np.repeat(np.arange(count), 10))

    return word(60) == "approve" and all(word(count) == "undecided" for count in (2, 10, MIN_CLUSTERS - 1))


def _cells() -> list[Cell]:
    found = [
        Cell(clusters=clusters, sizes=sizes, limit=limit, noise=noise, truth=partial(alike, share), word=word)
        for clusters, sizes, share, limit, noise in (
            (20, (4,), 0.8, 0.10, 0.05), (40, (1, 2, 20), 0.8, 0.03, 0.05), (150, (1, 1, 1, 12), 1.0, 0.10, 0.15),
            (30, (16,), 1.0, 0.10, 0.01), (150, (5,), 0.3, 0.03, 0.05),
        )
        for word in ("approve", "block")
    ]  # fmt: skip
    for clusters, sizes, noise, limit in (
        (60, (20,), 0.05, 0.02), (30, (16,), 0.10, 0.05), (150, (10,), 0.02, 0.01),
        (60, (10,), 0.05, 0.08), (45, (8,), 0.10, 0.10),  # of these bets on clusters decide
    ):  # fmt: skip
        cell = Cell(clusters=clusters, sizes=sizes, limit=limit, noise=noise, truth=partial(wholly, 1.0))
        found += [cell, replace(cell, truth=partial(wholly, 0.5)), replace(cell, word="block")]
        found += [replace(cell, truth=of_the_rate, relative=True), replace(cell, truth=half_points, metric="f1")]
    for clusters, sizes, noise, limit in (
        (404, (*[20] * 4, *[1] * 400), 0.02, 0.10), (150, (1, 1, 1, 12), 0.05, 0.08), (180, (1, 2, 3, 5, 8), 0.02, 0.04)
    ):  # fmt: skip
        unlike = partial(wholly, 1.0, by_size=True)
        found.append(Cell(clusters=clusters, sizes=sizes, limit=limit, noise=noise, truth=unlike))
        found.append(replace(found[-1], word="block"))
    return found


CELLS = _cells()
