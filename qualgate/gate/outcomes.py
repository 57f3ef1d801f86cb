"""Paired outcomes as the planner foresees them: what is assumed, many draws of it, and the gate's tests on every draw.

A draw of a set is kept as a few sums (`Drawn`), for the gate's tests on counts and on clusters need no more; sums of
several sets add up to those of a rule over all of them. Clusters of one size are exchangeable: how many of them hold
each possible set of outcomes is one multinomial draw, so thousands of clusters cost as little as a few.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from functools import lru_cache
from math import comb, log, sqrt

import numpy as np
from numpy.typing import NDArray
from scipy.special import gammaln, stdtrit

from qualgate.records import Evalset, RunEvidence
from qualgate.stats.chosen import GROWN_MAX_N
from qualgate.stats.intervals import normal_quantile
from qualgate.stats.paired import MIN_CLUSTERS
from qualgate.stats.power import approved, blocked, evidence_threshold
from qualgate.stats.region import evidence
from qualgate.stats.sequential import ASSUMED_DISAGREEMENT
from qualgate.stats.unseen import p_at_most

ASSUMED_BASELINE = 0.8  # share of a set's cases that the baseline gets right
ASSUMED_CORRELATION = 0.1  # of the flips of two cases of one cluster
_CELLS = 2_000_000  # drawn at a time
_STEP = 1.2  # between effective sizes at which thresholds are found
_CLEAR = 0.8  # evidence so far from the normal quantile is beyond every threshold's doubt


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedSet:
    """An evalset as the planner sees it. clusters: cases of each cluster; empty when every case stands for itself."""

    name: str
    metrics: tuple[str, ...]
    cases: int
    clusters: tuple[int, ...] = ()
    held: int = 0  # more cases, which run and do not count

    @classmethod
    def of(cls, evalset: Evalset, held: frozenset[str] = frozenset(), repeats: int = 1) -> PlannedSet:
        """held: ids of cases in quarantine. repeats: answers to each case, which makes it a cluster."""
        counting = [case for case in evalset.cases if case.id not in held]
        labels = Counter((case.cluster or case.id, case.cluster is None) for case in counting)
        sizes = tuple(size * repeats for size in labels.values())
        return cls(
            name=evalset.name,
            metrics=evalset.metrics,
            cases=sum(sizes),
            clusters=sizes if max(sizes, default=1) > 1 else (),
            held=(len(evalset.cases) - len(counting)) * repeats,
        )

    @property
    def sizes(self) -> Counter[int]:
        """How many clusters there are of each size."""
        return Counter(self.clusters) if self.clusters else Counter({1: self.cases})

    @property
    def drawn_singly(self) -> int:
        """Clusters that have to be drawn one by one: of sizes with more possible outcomes than clusters are worth."""
        return sum(many for size, many in self.sizes.items() if not _as_kinds(size, many))

    def grown(self, cases: int) -> PlannedSet:
        """The set with more cases of the same kind: clusters are repeated, not enlarged."""
        if not self.clusters or cases == self.cases:
            return replace(self, cases=cases)
        times = -(-cases * len(self.clusters) // self.cases)
        sizes = (self.clusters * -(-times // len(self.clusters)))[:times]
        return replace(self, cases=sum(sizes), clusters=sizes)


@dataclass(frozen=True, slots=True, kw_only=True)
class Assumed:
    """What is taken for true, by (metric, evalset); what is not listed has the default."""

    disagreement: Mapping[tuple[str, str], float] = field(default_factory=dict)
    baseline: Mapping[tuple[str, str], float] = field(default_factory=dict)
    default_disagreement: float = ASSUMED_DISAGREEMENT
    default_baseline: float = ASSUMED_BASELINE
    source: str = "assumed: no earlier run tells"

    def flips(self, metric: str, name: str) -> float:
        return self.disagreement.get((metric, name), self.default_disagreement)

    def right(self, metric: str, name: str) -> float:
        return self.baseline.get((metric, name), self.default_baseline)


def seen_in(evidence: RunEvidence) -> Assumed:
    """Disagreement and baseline rates of an earlier run, the least of its variants': the one most like the baseline.

    One flip is added, so that none seen is not taken for none ever.
    """
    before = {(u.key.evalset, u.key.case_id, u.key.repeat): u.values for u in evidence.baseline.units}
    changed: dict[tuple[str, str], float] = {}
    right: dict[tuple[str, str], float] = {}
    for arm in evidence.variants:
        found: dict[tuple[str, str], list[tuple[float, float]]] = {}
        for unit in arm.units:
            base = before.get((unit.key.evalset, unit.key.case_id, unit.key.repeat), {})
            for metric in evidence.metrics.get(unit.key.evalset, ()):
                pair = base.get(metric), unit.values.get(metric)
                if pair[0] is not None and pair[1] is not None:
                    found.setdefault((metric, unit.key.evalset), []).append((pair[0], pair[1]))
        for key, pairs in found.items():
            rate = (sum(one != other for one, other in pairs) + 1) / (len(pairs) + 1)
            changed[key] = min(rate, changed.get(key, 1.0))
            right[key] = sum(one for one, _ in pairs) / len(pairs)
    return Assumed(disagreement=changed, baseline=right, source=f"as seen in run {evidence.run_id}")


def outcome_chances(metric: str, name: str, loss: float, assumed: Assumed) -> NDArray:
    """P(lost, gained, both right, both wrong) of one case. loss: what P(lost) has beyond an identical variant's."""
    flips, right = assumed.flips(metric, name), assumed.right(metric, name)
    gained, lost = min(flips / 2, 1 - right), min(flips / 2 + loss, right)
    cells = np.array([lost, gained, right - lost, 1 - right - gained]).clip(0)
    return cells / cells.sum()


# ----------------------------------------------------------------------------------------------------------- draws


@dataclass(frozen=True, slots=True)
class Drawn:
    """Outcomes of one metric on one or several sets. All [draws]; d: gained − lost of a cluster, s: its cases."""

    lost: NDArray
    gained: NDArray
    right: NDArray  # cases that the baseline got right
    squares: NDArray  # Σ d² over clusters
    weighted: NDArray  # Σ d s
    flipped: NDArray  # clusters with any flip

    def __add__(self, other: Drawn) -> Drawn:
        return Drawn(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @classmethod
    def of_cases(cls, lost: NDArray, gained: NDArray, right: NDArray) -> Drawn:
        return cls(lost, gained, right, lost + gained, gained - lost, lost + gained)


def draw(one: PlannedSet, cells: NDArray, draws: int, generator: np.random.Generator) -> Drawn:
    """cells: chances of a case, as `outcome_chances` gives them."""
    if not one.clusters:
        counts = generator.multinomial(one.cases, cells, draws)
        return Drawn.of_cases(counts[:, 0], counts[:, 1], counts[:, 0] + counts[:, 2])
    sums = np.zeros((draws, len(fields(Drawn))))
    single: list[int] = []
    for size, many in sorted(one.sizes.items()):
        if not _as_kinds(size, many):
            single += [size] * many
            continue
        kinds, chances = _kinds(size, tuple(cells.tolist()))
        features = _features(kinds[:, 0], kinds[:, 1], kinds[:, 0] + kinds[:, 2], size)
        for start in range(0, draws, step := max(1, _CELLS // len(kinds))):
            counts = generator.multinomial(many, chances, min(step, draws - start))
            sums[start : start + step] += counts.astype(float) @ features
    if single:
        sizes = np.array(single)
        for start in range(0, draws, step := max(1, _CELLS // len(sizes))):
            lost, gained, right = draw_clusters(sizes, cells, min(step, draws - start), generator)
            sums[start : start + step] += _features(lost, gained, right, sizes).sum(axis=1)
    return Drawn(*np.rint(sums).astype(int).T)


def draw_clusters(
    sizes: NDArray, cells: NDArray, draws: int, generator: np.random.Generator
) -> tuple[NDArray, NDArray, NDArray]:
    """(lost, gained, baseline right) of each cluster, [draws, clusters].

    A share of a cluster's cases repeats one outcome, so that two of them correlate by `ASSUMED_CORRELATION`.
    """
    shape = (draws, len(sizes))
    alone = bool((sizes == 1).all())
    copies = np.zeros(shape, int) if alone else generator.binomial(sizes, sqrt(ASSUMED_CORRELATION), shape)
    outcome = np.searchsorted(np.cumsum(cells)[:3], generator.random(shape), side="right")
    rest, counts, left = sizes - copies, [], 1.0
    for index, chance in enumerate(cells[:3]):
        count = generator.binomial(rest, min(1.0, max(0.0, chance / left)) if left > 0 else 0.0)
        rest, left = rest - count, left - chance
        counts.append(count + np.where(outcome == index, copies, 0))
    return counts[0], counts[1], counts[0] + counts[2]


def _as_kinds(size: int, many: int) -> bool:
    return comb(size + 3, 3) <= max(4 * many, 84)


def _features(lost: NDArray, gained: NDArray, right: NDArray, size: NDArray | int) -> NDArray:
    """[..., sums of `Drawn`] of clusters with these outcomes."""
    d = gained - lost
    return np.stack([lost, gained, right, d * d, d * size, lost + gained > 0], axis=-1).astype(float)


@lru_cache(maxsize=256)
def _kinds(size: int, cells: tuple[float, ...]) -> tuple[NDArray, NDArray]:
    """Every (lost, gained, both right, both wrong) of a cluster of this size, and its chance under `draw_clusters`."""
    range_ = np.arange(size + 1)
    grid = np.stack(np.meshgrid(range_, range_, range_, indexing="ij"), axis=-1).reshape(-1, 3)
    grid = grid[grid.sum(axis=1) <= size]
    kinds = np.column_stack([grid, size - grid.sum(axis=1)])
    share, chances = sqrt(ASSUMED_CORRELATION), np.zeros(len(kinds))
    with np.errstate(divide="ignore"):
        logs = np.log(np.array(cells))
    for copies in range(size + 1):
        repeated = comb(size, copies) * share**copies * (1 - share) ** (size - copies)
        for outcome in range(4):
            rest = kinds - copies * (np.arange(4) == outcome)
            fits = (rest >= 0).all(axis=1) & ((rest == 0) | np.isfinite(logs)).all(axis=1)
            ways = gammaln(size - copies + 1) - gammaln(rest[fits] + 1).sum(axis=1)
            powers = np.where(rest[fits] > 0, rest[fits] * np.where(np.isfinite(logs), logs, 0.0), 0.0).sum(axis=1)
            chances[fits] += repeated * cells[outcome] * np.exp(ways + powers)
    order = np.argsort(-chances, kind="stable")  # a multinomial draw ends as soon as every cluster has its kind
    return kinds[order], chances[order] / chances.sum()


# ------------------------------------------------------------------------------------------------ the tests on them


def decide_cases(drawn: Drawn, n: int, margin: float, alpha: float, strict: float) -> tuple[NDArray, NDArray]:
    """[draws] proven within the margin at alpha, [draws] proven beyond it at `strict`, as `compare_pairs` would."""
    return (
        approved(drawn.lost, drawn.gained, n, margin, alpha),
        blocked(drawn.lost, drawn.gained, n, margin, strict),
    )


def decide_clusters(
    drawn: Drawn, sizes: Mapping[int, int], margin: float, alpha: float, strict: float
) -> tuple[NDArray, NDArray]:
    """Likewise as `compare_clustered_pairs` would. sizes: clusters of each size, at least two in all."""
    count, n = sum(sizes.values()), sum(size * many for size, many in sizes.items())
    squared = sum(size * size * many for size, many in sizes.items())
    down, up = drawn.lost, drawn.gained
    mean = (up - down) / n
    residual = drawn.squares - 2 * mean * drawn.weighted + mean * mean * squared
    spread = np.sqrt(count / (count - 1) * np.where(residual > 1e-9, residual, 0.0)) / n
    plain = np.sqrt(n / (n - 1) * np.maximum(down + up - n * mean * mean, 0)) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        wider = (spread * stdtrit(count - 1, 1 - alpha)) / (plain * stdtrit(n - 1, 1 - alpha))
    most = squared / n  # Kish: pairs for one that is surely independent
    told = (drawn.flipped >= MIN_CLUSTERS) & (plain > 0)
    effect = np.where(told, np.minimum(np.maximum(np.nan_to_num(wider, nan=1.0) ** 2, 1.0), most), most)
    size = np.maximum((n / effect).astype(int), 1)
    share = size / n
    lost, gained = (np.ceil(down * share), np.floor(down * share)), (np.floor(up * share), np.ceil(up * share))
    within = p_at_most(mean, spread, count, n / most, -margin) <= alpha
    beyond = p_at_most(-mean, spread, count, n / most, margin) <= strict
    within[within] = _each(
        np.minimum(lost[0], size - gained[0])[within], gained[0][within], size[within], margin, alpha
    )
    beyond[beyond] = _each(
        np.minimum(gained[1], size - lost[1])[beyond], lost[1][beyond], size[beyond], -margin, strict
    )
    return within, beyond


def _each(lost: NDArray, gained: NDArray, n: NDArray, loss: float, alpha: float) -> NDArray:
    """Draws at which "the loss is at least `loss`" is rejected, each with its own number of pairs.

    To `GROWN_MAX_N` pairs by the exact region; above, the threshold of the evidence drifts slowly with n: a few
    numbers have theirs found and the others' lie between.
    """
    held, aim = evidence(lost, gained, n, loss), normal_quantile(1 - alpha)  # type: ignore[arg-type]  # any n each
    result = held >= aim
    many, few = (n > GROWN_MAX_N) & (np.abs(held - aim) < _CLEAR), n <= GROWN_MAX_N
    if many.any():
        place = np.log(n[many] / GROWN_MAX_N) / log(_STEP)
        knots = np.unique(np.concatenate([np.floor(place), np.floor(place) + 1]))
        least = [evidence_threshold(round(GROWN_MAX_N * _STEP**knot) + 1, loss, alpha) for knot in knots]
        result[many] = held[many] >= np.interp(place, knots, least)
    for size in map(int, np.unique(n[few])):
        mine = n == size
        result[mine] = approved(lost[mine], gained[mine], size, loss, alpha)
    return result
