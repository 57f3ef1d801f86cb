"""Errors on clustered cases, drawn.

Where bets on clusters prove what is within the margin, their product is taken here as well. Else two answers must agree
on a decision; how often the one that is found for many draws at once does (the t that allows for clusters not drawn; of
scores t, then Gaffke's bound) is reported, so the gate errs no more often. That it decides nothing more is put to the
gate itself on some draws of each cell.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import betaincinv, stdtrit

from qualgate.stats.bounded import bounded_mean
from qualgate.stats.cluster_bets import bets_serve
from qualgate.stats.intervals import independent_clusters
from qualgate.stats.paired.compare import compare_clustered_pairs
from qualgate.stats.relative import RATE_PART, compare_relative
from qualgate.stats.unseen_clusters import p_at_most
from tests.verification.verdicts.exact_chances import ALPHA

# The rule that picks tables was tuned on 50, 100, 200, 250, 350 and 400; the others are held out.
CELLS_AT_ONCE = 400_000  # clusters drawn at a time
PUT_TO_THE_GATE = 3  # draws of a cell
ASKED = 1_000  # draws of a cell


def clustered(
    clusters: int, sizes: tuple[int, ...], alike: float, margin: float, more: float, draws: int,
    generator: np.random.Generator,
) -> dict[str, Any]:  # fmt: skip
    """At loss = margin, with a share of each cluster's cases that flip as one. more: disagreement beyond the loss."""
    chances_ = np.array([margin + more / 2, more / 2])

    def drawn(each: NDArray, shape: tuple[int, int]) -> tuple[NDArray, NDArray]:
        copies = generator.binomial(each, alike, shape)
        lost, gained = _flips(each - copies, chances_, generator)
        u = generator.random(shape)
        shared_lost = u < chances_[0]
        return lost + copies * shared_lost, gained + copies * (~shared_lost & (u < chances_.sum()))

    return {"alike": alike, "more": more} | _by_clusters(clusters, sizes, margin, draws, drawn, drawn)


def wholly(
    clusters: int, sizes: tuple[int, ...], noise: float, margin: float, part: float, draws: int,
    generator: np.random.Generator, *, by_size: bool,
) -> dict[str, Any]:  # fmt: skip
    """At loss = margin, where all loss is by clusters that lose `part` of their cases, the others flipping evenly. For
    the block: clusters that gain as much hide half of a loss that all others share. by_size: see `_hiding`."""
    chance = _hiding(_dealt(clusters, sizes), margin / part) if by_size else margin / part

    def failing(each: NDArray, shape: tuple[int, int]) -> tuple[NDArray, NDArray]:
        struck = generator.random(shape) < chance
        return struck, struck * generator.binomial(each, part, shape)

    def lost_wholly(each: NDArray, shape: tuple[int, int]) -> tuple[NDArray, NDArray]:
        struck, fell = failing(each, shape)
        lost, gained = _flips(np.broadcast_to(each, shape), np.array([noise, noise]) / 2, generator)
        return np.where(struck, fell, lost), np.where(struck, 0, gained)

    def hidden(each: NDArray, shape: tuple[int, int]) -> tuple[NDArray, NDArray]:
        struck, rose = failing(each, shape)
        shared = 2 * margin / (1 - margin / part)  # by the others, of which twice the margin is lost in all
        lost, gained = _flips(np.broadcast_to(each, shape), np.array([noise / 2 + shared, noise / 2]), generator)
        return np.where(struck, 0, lost), np.where(struck, rose, gained)

    found = _by_clusters(clusters, sizes, margin, draws, lost_wholly, hidden)
    return {"noise": noise, "part": part, "by_size": by_size} | found


def _hiding(each: NDArray, share: float) -> NDArray:
    """[clusters] chances to fail as a whole by which this share of cases fails and none of them is most often seen to:
    1 − c / size of those larger than c, c found by bisection."""
    low, high = 0.0, float(each.max())
    for _ in range(100):
        c = (low + high) / 2
        low, high = (c, high) if np.maximum(each - c, 0).sum() > share * each.sum() else (low, c)
    return np.maximum(1 - high / each, 0.0)


def _flips(cases: NDArray, chances_: NDArray, generator: np.random.Generator) -> tuple[NDArray, NDArray]:
    """(lost, gained) of so many cases, each alone."""
    lost = generator.binomial(cases, chances_[0])
    return lost, generator.binomial(cases - lost, chances_[1] / (1 - chances_[0]))


Drawing = Callable[[NDArray, tuple[int, int]], tuple[NDArray, NDArray]]  # (lost, gained) [draws, clusters]


def _by_clusters(
    clusters: int, sizes: tuple[int, ...], margin: float, draws: int, to_approve: Drawing, to_block: Drawing
) -> dict[str, Any]:
    """Shares of draws that are approved and blocked at most, and draws that the gate decides and this does not."""
    each = _dealt(clusters, sizes)
    found: dict[str, Any] = {"clusters": clusters, "sizes": sorted(set(sizes)), "margin": margin, "draws": draws}
    strangers = 0
    for name, drawing, sign in (("approve", to_approve, 1), ("block", to_block, -1)):
        wrong = 0
        for start in range(0, draws, step := max(1, CELLS_AT_ONCE // clusters)):
            lost, gained = drawing(each, (min(step, draws - start), clusters))
            mean, error = _moments(sign * (gained - lost), each)
            if sign > 0 and bets_serve(each, margin, ALPHA):
                won = (margin * each - lost + gained) / each.max() / (1 - margin)
                rejects = np.prod(1 + 0.95 * won, axis=1) >= 1 / ALPHA
            else:
                rejects = p_at_most(mean, error, clusters, independent_clusters(each, ALPHA), -sign * margin) <= ALPHA
            wrong += int(rejects.sum())
            if start == 0:
                results = [_gates(lost[k], gained[k], each, margin) for k in range(PUT_TO_THE_GATE)]
                decided = [(one.p_within if sign > 0 else one.p_beyond) <= ALPHA for one in results]
                strangers += int((np.array(decided) & ~rejects[:PUT_TO_THE_GATE]).sum())
        found[name] = wrong / draws
    return found | {"not_the_gates": strangers}


def _gates(lost: NDArray, gained: NDArray, each: NDArray, margin: float):
    """What the gate says of one draw."""
    d = np.concatenate(
        [np.repeat([-1.0, 1.0, 0.0], [a, b, n - a - b]) for a, b, n in zip(lost, gained, each, strict=True)]
    )
    return compare_clustered_pairs(d < 0, d > 0, np.repeat(np.arange(len(each)), each), margin, ALPHA)


def _dealt(clusters: int, sizes: tuple[int, ...]) -> NDArray:
    return np.array([sizes[index % len(sizes)] for index in range(clusters)])


def _moments(sums: NDArray, each: NDArray) -> tuple[NDArray, NDArray]:
    """[draws] mean over cases and its standard error, from [draws, clusters] sums."""
    total, count = each.sum(), len(each)
    mean = sums.sum(axis=1) / total
    residual = sums - mean[:, None] * each
    return mean, np.sqrt(count / (count - 1) * (residual**2).sum(axis=1)) / total


def relative(
    clusters: int, sizes: tuple[int, ...], noise: float, share: float, draws: int, generator: np.random.Generator
) -> dict[str, Any]:
    """A share of clusters is lost as a whole, and a loss of that share of the baseline's rate (85 %) is the limit."""
    each, right, spent, approved, strangers = _dealt(clusters, sizes), 0.85, RATE_PART * ALPHA, 0, 0
    trials, total = independent_clusters(each, ALPHA), int(each.sum())
    for start in range(0, draws, step := max(1, CELLS_AT_ONCE // clusters)):
        shape = (min(step, draws - start), clusters)
        base = generator.binomial(each, right, shape)
        lost, gained = (
            generator.binomial(base, noise / 2 / right),
            generator.binomial(each - base, noise / 2 / (1 - right)),
        )
        struck = generator.random(shape) < share
        lost, gained = np.where(struck, base, lost), np.where(struck, 0, gained)
        mean, error = _moments(gained - lost, each)
        hits = base.sum(axis=1) / total * trials
        least = betaincinv(hits, trials - hits + 1, spent)  # the baseline's rate is surely that
        rejects = p_at_most(mean, error, clusters, trials, -share * least) <= ALPHA - spent
        approved += int(rejects.sum())
        for k in range(PUT_TO_THE_GATE if start == 0 else 0):
            before = [np.arange(n) < b for b, n in zip(base[k], each, strict=True)]
            after = [
                np.where(one, np.arange(len(one)) >= a, np.arange(len(one)) < b + c)
                for one, a, b, c in zip(before, lost[k], base[k], gained[k], strict=True)
            ]
            labels = np.repeat(np.arange(clusters), each)
            found = compare_relative(np.concatenate(before), np.concatenate(after), labels, share, ALPHA)
            strangers += found.p_within <= ALPHA and not rejects[k]
    return {
        "rule": "relative drop", "clusters": clusters, "sizes": sorted(set(sizes)), "noise": noise, "limit": share,
        "draws": draws, "approve": approved / draws, "block": 0.0, "not_the_gates": strangers,
    }  # fmt: skip


def scores(
    clusters: int, sizes: tuple[int, ...], noise: float, margin: float, draws: int, generator: np.random.Generator
) -> dict[str, Any]:
    """Scores between 0 and 1: some clusters lose half a point on every case, the others move evenly by up to `noise`.
    The second answer, Gaffke's bound, is asked where t approves, of at most `ASKED` draws."""
    each, part = _dealt(clusters, sizes), 0.5
    labels, asked, agreed, seen, by_t = np.repeat(np.arange(clusters), each), 0, 0, 0, 0
    width = np.sqrt(each / 3) * noise  # of a sum of that many even moves
    for start in range(0, draws, step := max(1, CELLS_AT_ONCE // clusters)):
        shape = (min(step, draws - start), clusters)
        moves = np.clip(generator.normal(0, width, shape), -each * noise, each * noise)
        sums = np.where(generator.random(shape) < margin / part, -part * each, moves)
        mean, error = _moments(sums, each)
        t = (mean + margin) / np.maximum(error, 1e-300)
        passing = np.flatnonzero(t >= stdtrit(clusters - 1, 1 - ALPHA))
        seen, by_t = seen + len(t), by_t + len(passing)
        for k in passing[: max(0, ASKED - asked)]:
            values = np.repeat(sums[k] / each, each)
            asked += 1
            agreed += bounded_mean(values, labels, -margin, ALPHA).p_above <= ALPHA
    return {
        "rule": "scores", "clusters": clusters, "sizes": sorted(set(sizes)), "noise": noise, "margin": margin,
        "draws": draws, "asked": asked, "approve": by_t / seen * (agreed / asked if asked else 1.0), "block": 0.0,
    }  # fmt: skip
