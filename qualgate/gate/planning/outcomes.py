"""Simulate paired outcomes for the planner: draws under its assumptions, and the gate's tests on every draw.

A draw of a slice is stored as a few sums (`Drawn`), which suffice for the gate's tests on counts and on clusters; sums
of several sets add up. Clusters of one size are exchangeable: the counts of each possible set of outcomes are one
multinomial draw, so thousands of clusters cost as little as a few. A cluster that slices divide is drawn by itself,
and each slice sees its own part.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import lru_cache
from math import comb, log, sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import gammaln, stdtrit

from qualgate.gate.planning.assumed import Assumed
from qualgate.gate.planning.planned_sets import Kind, Marks, PlannedSet
from qualgate.stats.cluster_bets import log_bets
from qualgate.stats.intervals import binomial_lower, binomial_upper, independent_clusters, normal_quantile
from qualgate.stats.paired.compare import MIN_CLUSTERS, TRUSTED_CLUSTERS
from qualgate.stats.paired.region import evidence
from qualgate.stats.power import approved, blocked, evidence_threshold
from qualgate.stats.relative import RATE_PART
from qualgate.stats.unseen_clusters import p_at_most

_CELLS = 2_000_000  # drawn at a time
_STEP = 1.2  # between effective sizes at which thresholds are found
_CLEAR = 0.8  # evidence so far from the normal quantile is beyond every threshold's doubt
_SIZES = 80  # effective sizes to `_FEW` are rounded to so fine a part: half a per cent moves a rate by 0.3 point
_FEW = 400  # pairs
_BINS = 2.5  # of the baseline's rate, in √n cases that are right: each one standard deviation or less wide at 80 %
_ALIKE = 0.02  # margins that hang on the baseline's rate are rounded to so fine a part


@dataclass(frozen=True, slots=True, kw_only=True)
class Bets:
    """Parameters of the bets that prove a slice, see `stats.cluster_bets`."""

    margin: float
    largest: int  # answers of the slice's largest cluster


View = frozenset[Marks] | None  # which questions of a set a slice sees; None: all
Part = tuple[tuple[int, ...], int]  # by which views it is seen, and its answers
Shape = tuple[int, tuple[Part, ...]]  # questions of a cluster, and its parts that any view sees


def outcome_chances(outcome: str, name: str, loss: float, assumed: Assumed) -> NDArray:
    """P(lost, gained, both right, both wrong) of one answer. loss: excess of P(lost) over an identical variant's."""
    flips, right = assumed.flips(outcome, name), assumed.right(outcome, name)
    gained, lost = min(flips / 2, 1 - right), min(flips / 2 + loss, right)
    cells = np.array([lost, gained, right - lost, 1 - right - gained]).clip(0)
    return cells / cells.sum()


# ----------------------------------------------------------------------------------------------------------- draws


@dataclass(frozen=True, slots=True)
class Drawn:
    """Outcomes of one slice. All [draws]; d: gained − lost of a cluster, s: its answers, as far as the slice sees."""

    lost: NDArray
    gained: NDArray
    right: NDArray  # answers that the baseline got right
    squares: NDArray  # Σ d² over clusters
    weighted: NDArray  # Σ d s
    flipped: NDArray  # clusters with any flip
    capital: NDArray  # Σ log of the bets on clusters (`stats.cluster_bets`); 0 where none are laid

    @classmethod
    def of_cases(cls, lost: NDArray, gained: NDArray, right: NDArray) -> Drawn:
        """Sums for independent questions with one answer each."""
        return cls(lost, gained, right, lost + gained, gained - lost, lost + gained, 0.0 * lost)

    def __add__(self, other: Drawn) -> Drawn:
        return self._each(lambda name: getattr(self, name) + getattr(other, name))

    def at(self, which: NDArray) -> Drawn:
        """Select draws."""
        return self._each(lambda name: getattr(self, name)[which])

    @staticmethod
    def _each(value: Callable[[str], NDArray]) -> Drawn:
        return Drawn(*(value(column.name) for column in fields(Drawn)))


@dataclass(frozen=True, slots=True)
class Columns:
    """Parts of clusters that are drawn one by one. Arrays: [columns], those of a cluster side by side."""

    home: NDArray  # number of the cluster
    sizes: NDArray  # answers
    shares: NDArray  # of a cluster's answers, that repeat one outcome
    seen: tuple[tuple[int, ...], ...]  # by which views

    @classmethod
    def of(cls, shapes: Iterable[Shape], assumed: Assumed, repeats: int) -> Columns:
        """One cluster of each shape, in their order."""
        rows = [
            (home, size, sqrt(assumed.alike(questions, repeats)), view_numbers)
            for home, (questions, parts) in enumerate(shapes)
            for view_numbers, size in parts
        ]
        home, sizes, shares, view_numbers = zip(*rows, strict=True) if rows else ((), (), (), ())
        return cls(np.array(home, int), np.array(sizes, int), np.array(shares, float), view_numbers)

    def of_view(self, view: int) -> tuple[NDArray, NDArray]:
        """The view's columns, and where among them each cluster begins."""
        columns = np.flatnonzero([view in view_numbers for view_numbers in self.seen])
        return columns, np.flatnonzero(np.diff(self.home[columns], prepend=-1))

    def draw(self, cells: NDArray, draws: int, generator: np.random.Generator) -> tuple[NDArray, NDArray, NDArray]:
        """Draw (lost, gained, baseline right) of each part, [draws, columns].

        A share of a cluster's answers repeats one outcome, so that two of them correlate by its square. The other
        answers are drawn independently: a multinomial draw, as binomial draws of each outcome among what remains.
        """
        shape = (draws, len(self.sizes))
        repeated = generator.binomial(self.sizes, np.where(self.sizes > 0, self.shares, 0.0), shape)
        common = np.searchsorted(np.cumsum(cells)[:3], generator.random((draws, self.clusters)), side="right")
        repeated_outcome = common[:, self.home]
        remaining_answers, counts, remaining_chance = self.sizes - repeated, [], 1.0
        for index, chance in enumerate(cells[:3]):
            count = generator.binomial(
                remaining_answers, min(1.0, max(0.0, chance / remaining_chance)) if remaining_chance > 0 else 0.0
            )
            remaining_answers, remaining_chance = remaining_answers - count, remaining_chance - chance
            counts.append(count + np.where(repeated_outcome == index, repeated, 0))
        return counts[0], counts[1], counts[0] + counts[2]

    @property
    def clusters(self) -> int:
        """Number of clusters."""
        return int(self.home[-1]) + 1 if len(self.home) else 0


def shape_of(kind: Kind, views: Sequence[View], repeats: int) -> Shape:
    """The shape of a cluster. repeats: answers to each question that count separately."""
    parts: Counter[tuple[int, ...]] = Counter()
    for marks, count in kind:
        view_numbers = tuple(index for index, view in enumerate(views) if view is None or marks in view)
        if view_numbers:
            parts[view_numbers] += count * repeats
    return sum(count for _, count in kind), tuple(sorted(parts.items()))


def shapes_of(planned_set: PlannedSet, views: Sequence[View], repeats: int) -> Counter[Shape]:
    """Count the set's clusters by shape, as far as any view sees them."""
    shapes: Counter[Shape] = Counter()
    for kind, count in planned_set.kinds.items():
        shape = shape_of(kind, views, repeats)
        if shape[1]:
            shapes[shape] += count
    return shapes


def drawn_singly(shapes: Mapping[Shape, int]) -> int:
    """Number of parts that must be drawn one by one."""
    return sum(count * len(parts) for (_, parts), count in shapes.items() if not _drawn_by_kind(parts, count))


def draw(
    planned_set: PlannedSet,
    views: Sequence[View],
    cells: NDArray,
    assumed: Assumed,
    draws: int,
    generator: np.random.Generator,
    repeats: int = 1,
    bets: Sequence[Bets | None] = (),
) -> tuple[Drawn, ...]:
    """Draw outcomes once and sum them for each view. cells: chances of an answer, from `outcome_chances`.

    repeats: answers to each question that count by themselves. bets: of each view; empty when none has any.
    """
    bets_by_view = bets or (None,) * len(views)
    sums, single_shapes = np.zeros((len(views), draws, len(fields(Drawn)))), []
    for shape, count in sorted(shapes_of(planned_set, views, repeats).items()):
        questions, parts = shape
        if not _drawn_by_kind(parts, count):
            single_shapes += [shape] * count
            continue
        ((view_numbers, size),) = parts
        correlation = assumed.alike(questions, repeats) if size > 1 else 0.0
        cluster_outcomes, chances = _outcomes_of_cluster(size, sqrt(correlation), tuple(cells.tolist()))
        outcomes = cluster_outcomes[:, 0], cluster_outcomes[:, 1], cluster_outcomes[:, 0] + cluster_outcomes[:, 2]
        features = {view: _features(*outcomes, size, bets_by_view[view]) for view in view_numbers}
        for start in range(0, draws, step := max(1, _CELLS // len(cluster_outcomes))):
            counts = generator.multinomial(count, chances, min(step, draws - start)).astype(float)
            for view in view_numbers:
                sums[view, start : start + step] += counts @ features[view]
    if single_shapes:
        columns = Columns.of(single_shapes, assumed, repeats)
        columns_by_view = [columns.of_view(view) for view in range(len(views))]
        for start in range(0, draws, step := max(1, _CELLS // len(columns.sizes))):
            outcomes_by_column = columns.draw(cells, min(step, draws - start), generator)
            for view, (view_columns, starts) in enumerate(columns_by_view):
                if len(view_columns):
                    lost, gained, right = (
                        np.add.reduceat(each[:, view_columns], starts, axis=1) for each in outcomes_by_column
                    )
                    sizes = np.add.reduceat(columns.sizes[view_columns], starts)
                    sums[view, start : start + step] += _features(lost, gained, right, sizes, bets_by_view[view]).sum(
                        axis=1
                    )
    return tuple(Drawn(*np.rint(view[:, :-1]).astype(int).T, capital=view[:, -1]) for view in sums)


def _drawn_by_kind(parts: Sequence[Part], clusters: int) -> bool:
    """Return whether this many clusters of one shape are drawn at once, by the counts of their possible outcomes.

    They are not if views divide a cluster into parts, or if one has too many possible outcomes for so few clusters.
    """
    return len(parts) == 1 and comb(parts[0][1] + 3, 3) <= max(4 * clusters, 84)


def _features(lost: NDArray, gained: NDArray, right: NDArray, size: NDArray | int, bets: Bets | None) -> NDArray:
    """Return the sums of `Drawn`, [..., sums], for clusters with these outcomes. bets: None leaves the capital at 0."""
    d = gained - lost
    capital = 0.0 * d if bets is None else log_bets(-d, size, bets.margin, bets.largest)
    return np.stack([lost, gained, right, d * d, d * size, lost + gained > 0, capital], axis=-1).astype(float)


@lru_cache(maxsize=256)
def _outcomes_of_cluster(size: int, share: float, cells: tuple[float, ...]) -> tuple[NDArray, NDArray]:
    """Every (lost, gained, both right, both wrong) of a cluster of this size, and its chance under `Columns.draw`."""
    range_ = np.arange(size + 1)
    grid = np.stack(np.meshgrid(range_, range_, range_, indexing="ij"), axis=-1).reshape(-1, 3)
    grid = grid[grid.sum(axis=1) <= size]
    outcomes = np.column_stack([grid, size - grid.sum(axis=1)])
    chances = np.zeros(len(outcomes))
    with np.errstate(divide="ignore"):
        logs = np.log(np.array(cells))
    for copies in range(size + 1):
        repeated = comb(size, copies) * share**copies * (1 - share) ** (size - copies)
        for outcome in range(4):
            rest_outcomes = outcomes - copies * (np.arange(4) == outcome)
            fits = (rest_outcomes >= 0).all(axis=1) & ((rest_outcomes == 0) | np.isfinite(logs)).all(axis=1)
            ways = gammaln(size - copies + 1) - gammaln(rest_outcomes[fits] + 1).sum(axis=1)
            powers = np.where(
                rest_outcomes[fits] > 0, rest_outcomes[fits] * np.where(np.isfinite(logs), logs, 0.0), 0.0
            ).sum(axis=1)
            chances[fits] += repeated * cells[outcome] * np.exp(ways + powers)
    order = np.argsort(-chances, kind="stable")  # a multinomial draw ends as soon as every cluster has its kind
    return outcomes[order], chances[order] / chances.sum()


# ------------------------------------------------------------------------------------------------ the tests on them


def trials_of(sizes: Mapping[int, int], alpha: float) -> float:
    """Return the effective number of independent clusters. sizes: size → number of clusters."""
    return independent_clusters(np.repeat(list(sizes), list(sizes.values())), alpha)


def decide_cases(
    drawn: Drawn, n: int, margins: tuple[float, float], alpha: float, strict: float
) -> tuple[NDArray, NDArray]:
    """Test independent cases on every draw, as `compare_pairs`.

    margins: of the proof and of the block. Returns: ([draws] proven within the first margin at `alpha`, [draws] beyond
    the second one at `strict`).
    """
    return (
        approved(drawn.lost, drawn.gained, n, margins[0], alpha),
        blocked(drawn.lost, drawn.gained, n, margins[1], strict),
    )


def decide_clusters(
    drawn: Drawn,
    sizes: Mapping[int, int],
    margins: tuple[ArrayLike, ArrayLike],
    alpha: float,
    strict: float,
    *,
    by_bets: bool = False,
) -> tuple[NDArray, NDArray]:
    """Test clusters on every draw, as `compare_clustered_pairs`. Returns the same pair as `decide_cases`.

    sizes: size → clusters, at least two in all. margins: one, or one per draw. by_bets: prove the margin by the bets'
    capital.
    """
    approve_margin, block_margin = (np.broadcast_to(np.asarray(margin, float), drawn.lost.shape) for margin in margins)
    count, n = sum(sizes.values()), sum(size * clusters for size, clusters in sizes.items())
    squared = sum(size * size * clusters for size, clusters in sizes.items())
    all_lost, all_gained = drawn.lost, drawn.gained
    mean = (all_gained - all_lost) / n
    residual = drawn.squares - 2 * mean * drawn.weighted + mean * mean * squared
    spread = np.sqrt(count / (count - 1) * np.where(residual > 1e-9, residual, 0.0)) / n
    plain = np.sqrt(n / (n - 1) * np.maximum(all_lost + all_gained - n * mean * mean, 0)) / n
    with np.errstate(divide="ignore", invalid="ignore"):
        wider = (spread * stdtrit(count - 1, 1 - alpha)) / (plain * stdtrit(n - 1, 1 - alpha))
    trials = trials_of(sizes, alpha)
    most_effect = n / trials  # pairs for one that is surely independent
    estimable = (drawn.flipped >= MIN_CLUSTERS) & (plain > 0)
    effect = np.where(
        estimable, np.minimum(np.maximum(np.nan_to_num(wider, nan=1.0) ** 2, 1.0), most_effect), most_effect
    )
    size = np.maximum((n / effect).astype(int), 1)
    few, step = estimable & (size <= _FEW), np.maximum(size // _SIZES, 1)  # each of these takes a threshold of its own
    size = np.where(few, np.minimum((size + step // 2) // step * step, n), size)
    share = size / n
    lost, gained = (
        (np.ceil(all_lost * share), np.floor(all_lost * share)),
        (np.floor(all_gained * share), np.ceil(all_gained * share)),
    )
    beyond = p_at_most(-mean, spread, count, trials, block_margin) <= strict
    if by_bets:
        within = drawn.capital >= -log(alpha)
    else:
        within = p_at_most(mean, spread, count, trials, -approve_margin) <= alpha
        within[within] = _each(
            np.minimum(lost[0], size - gained[0])[within],
            gained[0][within],
            size[within],
            approve_margin[within],
            alpha,
        )
        within &= _trusted(all_lost, all_gained, n, drawn.flipped, size, int(trials), approve_margin, alpha)
    beyond[beyond] = _each(
        np.minimum(gained[1], size - lost[1])[beyond], lost[1][beyond], size[beyond], -block_margin[beyond], strict
    )
    beyond &= _trusted(all_gained, all_lost, n, drawn.flipped, size, int(trials), -block_margin, strict)
    return within, beyond


def _trusted(
    down: NDArray, up: NDArray, n: int, flipped: NDArray, size: NDArray, least: int, loss: NDArray, alpha: float
) -> NDArray:
    """Return the [draws] that also pass the test at the effective number of pairs, as in `compare_clustered_pairs`.

    Only few flipped clusters need it: with `TRUSTED_CLUSTERS` or more every draw passes. size: the estimated effective
    number of pairs. least: the effective number of clusters.
    """
    trust = (flipped - MIN_CLUSTERS + 1) / (TRUSTED_CLUSTERS - MIN_CLUSTERS + 1)
    passed = np.full(len(flipped), True)
    in_between = (trust > 0) & (trust < 1) & (size > least)
    if in_between.any():
        strengths = []
        for pairs in (np.full(len(flipped), max(least, 1)), size):
            worst = np.minimum(np.ceil(down * pairs / n), pairs - np.floor(up * pairs / n))
            strengths.append(
                evidence(worst[in_between], np.floor(up * pairs / n)[in_between], pairs[in_between], loss[in_between])
            )
        joined = strengths[0] + trust[in_between] * (strengths[1] - strengths[0])
        passed[in_between] = joined >= normal_quantile(1 - alpha)
    return passed


def decide_relative(
    drawn: Drawn, sizes: Mapping[int, int], limit: float, alpha: float, strict: float
) -> tuple[NDArray, NDArray]:
    """Test a relative loss on every draw, as `compare_relative`. Returns the same pair as `decide_cases`.

    limit: share of the baseline's rate that may be lost. The margins depend on how often the baseline is right. For
    single cases, draws with about the same rate share one margin, for which whole regions are computed.
    """
    n, spent = sum(size * clusters for size, clusters in sizes.items()), RATE_PART * alpha
    trials = trials_of(sizes, spent)
    alpha, block_alpha, has_right = alpha - spent, max(strict - spent, 1e-12), drawn.right > 0
    single = max(sizes) == 1
    step = max(1.0, sqrt(trials) / _BINS) if single else trials / n
    bins, bin_of_draw = np.unique(np.rint(drawn.right / n * trials / step), return_inverse=True)
    right = np.clip(bins * step, min(1.0, trials), trials)
    approve_margins = limit * np.array([binomial_lower(hits, trials, spent) for hits in right])  # type: ignore[arg-type]  # fractions are fine
    block_margins = np.minimum(limit * np.array([binomial_upper(hits, trials, spent) for hits in right]), 1 - 1e-9)  # type: ignore[arg-type]
    if not single:
        within, beyond = decide_clusters(
            drawn, sizes, (approve_margins[bin_of_draw], block_margins[bin_of_draw]), alpha, block_alpha
        )
        return within & has_right, beyond & has_right & (strict > spent)
    within, beyond = np.zeros(len(bin_of_draw), bool), np.zeros(len(bin_of_draw), bool)
    for bin_number in np.unique(bin_of_draw[has_right]):
        in_bin = (bin_of_draw == bin_number) & has_right
        within[in_bin], beyond[in_bin] = decide_cases(
            drawn.at(in_bin),
            n,
            (float(approve_margins[bin_number]), float(block_margins[bin_number])),
            alpha,
            block_alpha,
        )
    return within, beyond & (strict > spent)


def _each(lost: NDArray, gained: NDArray, n: NDArray, loss: NDArray, alpha: float) -> NDArray:
    """Return the draws that reject "the loss is at least `loss`", each with its own number of pairs and margin.

    Up to `_FEW` pairs each number has its own threshold of the evidence. Above, the threshold drifts slowly with n and
    is interpolated between a few. Differing margins are rounded, so that fewer thresholds are computed: with few pairs,
    tables change abruptly.
    """
    if len(loss) and loss.min() < loss.max():
        loss = np.sign(loss) * np.exp(_ALIKE * np.rint(np.log(np.abs(loss)) / _ALIKE))
    strength, aim = evidence(lost, gained, n, loss), normal_quantile(1 - alpha)
    result = strength >= aim
    is_close, is_small = (n > _FEW) & (np.abs(strength - aim) < _CLEAR), n <= _FEW
    for margin in map(float, np.unique(loss[is_close | is_small])):
        above_few = is_close & (loss == margin)
        if above_few.any():
            position = np.log(n[above_few] / _FEW) / log(_STEP)
            knots = np.unique(np.concatenate([np.floor(position), np.floor(position) + 1]))
            least = [evidence_threshold(round(_FEW * _STEP**knot) + 1, margin, alpha) for knot in knots]
            result[above_few] = strength[above_few] >= np.interp(position, knots, least)
        with_margin = is_small & (loss == margin)
        for size in map(int, np.unique(n[with_margin])):
            selected = with_margin & (n == size)
            result[selected] = strength[selected] >= evidence_threshold(size, margin, alpha, roughly=True)
    return result
