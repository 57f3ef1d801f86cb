"""Tests of whether two servers answer the same prompts by one law, with or without log-probs.

Both tests permute which server gave an answer, within each prompt and stage, so their error is exact whatever the
laws are (`laws`). `p` looks at the answers. `p_logprobs` looks at the log-probs that the servers give: for each token
behind one beginning, drawn by both, how far its mean log-prob differs between the servers, as a sum of squares between
them. A server that repeats itself exactly shows the smallest difference; one whose log-probs vary hides it, because the
permutations then differ as much. Where both tests are made, each has half of alpha (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from qualgate.stats.laws import Answers, beginnings, difference, far_and_sharp, members_of

DEALS = 1999  # permutations of a test
MOST_APART = 1.0  # nats: one odd token must not outweigh all others


@dataclass(frozen=True, slots=True)
class Drawn:
    """Answers of both servers to one prompt. a, b: the tokens of each answer, any hashables; a_logprobs, b_logprobs: of
    each answer one per token, in nats, but for an end that has none; empty where they are not given."""

    a: Answers
    b: Answers
    a_logprobs: Sequence[Sequence[float]] = ()
    b_logprobs: Sequence[Sequence[float]] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Apart:
    """Result. p_logprobs: None without log-probs. splits: sets of answers with a common beginning that the test of the
    answers rests on; tokens: those whose log-probs both servers gave. nats: root mean square difference of a token's
    mean log-prob between the servers; noise: of a log-prob from its server's own mean, A's and B's."""

    p: float
    p_logprobs: float | None
    each: float  # the level of each test
    splits: int
    tokens: int = 0
    nats: float = 0.0
    noise: tuple[float, ...] = (0.0, 0.0)

    @property
    def different(self) -> bool:
        """Whether a test rejects that both laws are one."""
        return min(self.p, 1.0 if self.p_logprobs is None else self.p_logprobs) <= self.each


@dataclass(frozen=True, slots=True)
class Tree:
    """Answers to one prompt, the first `first` of them A's. sets: [sets, answers] for `laws`. forks: for each place
    where answers part, the members of each branch. given, nats: [tokens, answers], which answers hold a token behind
    one beginning, and its log-prob less their mean."""

    first: int
    sets: NDArray
    forks: Sequence[Sequence[NDArray]]
    given: NDArray
    nats: NDArray


@dataclass(frozen=True, slots=True)
class Forest:
    """The trees of all prompts, the sums of both tests over the observed labels and their permutations, and the result
    of the tests."""

    trees: Sequence[Tree]
    sums: tuple[NDArray, NDArray, NDArray]
    apart: Apart


def compare_endpoints(prompts: Sequence[Drawn], alpha: float, seed: int = 0, deals: int = DEALS) -> Forest:
    """Test whether A's and B's answers are of one law. seed: of the permutations."""
    generator = np.random.default_rng(seed)
    with_logprobs = bool(prompts) and all(drawn.a_logprobs and drawn.b_logprobs for drawn in prompts)
    trees = [_tree(drawn, with_logprobs) for drawn in prompts]
    sums = _sums(trees, deals, generator)
    apart = Apart(
        p=_share(difference(*sums[:2])),
        p_logprobs=_share(sums[2]) if with_logprobs else None,
        each=alpha / 2 if with_logprobs else alpha,
        splits=sum(len(tree.sets) for tree in trees),
        **_sizes(trees),
    )
    return Forest(trees, sums, apart)


def _share(values: NDArray) -> float:
    """The p-value: the share of labelings at least as far apart as the first, which is the observed one."""
    return float((values >= values[0] - 1e-9 * max(1.0, abs(values[0]))).mean())


def _tree(drawn: Drawn, with_logprobs: bool) -> Tree:
    answers, logprobs = [*drawn.a, *drawn.b], [*drawn.a_logprobs, *drawn.b_logprobs]
    forks, given, nats = [], [], []
    waiting = [(0, list(range(len(answers))))]
    while waiting:
        depth, who = waiting.pop()
        branches: dict[object, list[int]] = {}
        for index in who:
            branches.setdefault(answers[index][depth] if depth < len(answers[index]) else None, []).append(index)
        if len(branches) > 1:
            forks.append([np.array(those) for those in branches.values()])
        for token, those in branches.items():
            if token is None or len(those) < 2:
                continue
            waiting.append((depth + 1, those))
            if with_logprobs and depth < len(logprobs[those[0]]):
                values = np.array([logprobs[index][depth] for index in those])
                values = np.clip(values - np.median(values), -MOST_APART, MOST_APART)
                row, member = np.zeros((2, len(answers)))
                row[those], member[those] = values - values.mean(), 1.0
                given, nats = [*given, member], [*nats, row]
    shape = (len(given), len(answers))
    sets = members_of(beginnings(answers), len(answers))
    return Tree(len(drawn.a), sets, forks, np.array(given).reshape(shape), np.array(nats).reshape(shape))


def permuted(own: NDArray, deals: int, generator: np.random.Generator) -> NDArray:
    """Return the labels and `deals` permutations of them, as rows."""
    return np.vstack([own, generator.permuted(np.tile(own, (deals, 1)), axis=1)])


def _own(tree: Tree) -> NDArray:
    """The observed labels, 1 for A's."""
    return (np.arange(tree.given.shape[1]) < tree.first).astype(float)


def _sums(trees: Sequence[Tree], deals: int, generator: np.random.Generator) -> tuple[NDArray, NDArray, NDArray]:
    """Both sums of `laws` and the log-probs' sum of squares, for the observed labels and their permutations."""
    far, sharp, squares = np.zeros((3, deals + 1))
    for tree in trees:
        labels = permuted(_own(tree), deals, generator)
        parts, tree_sharp = far_and_sharp(tree.sets, labels)
        far, sharp = far + parts.sum(1), sharp + tree_sharp
        squares = squares + between(tree.given, tree.nats, labels)[0]
    return far, sharp, squares


def between(given: NDArray, nats: NDArray, labels: NDArray) -> tuple[NDArray, NDArray]:
    """Each labeling's sum over tokens of w (mean of A - mean of B)^2, and of w = nA nB / n."""
    size, count = given.sum(1), labels @ given.T
    weight = count * (size - count) / np.maximum(size, 1)
    total = labels @ nats.T
    apart = total / np.maximum(count, 1) - (nats.sum(1) - total) / np.maximum(size - count, 1)
    return (weight * apart**2).sum(1), weight.sum(1)


def _sizes(trees: Sequence[Tree]) -> dict[str, Any]:
    """How far the log-probs are apart, and within each server."""
    squares, weights, tokens, own = 0.0, 0.0, 0, np.zeros((2, 2))
    for tree in trees:
        labels = _own(tree)
        square, weight = between(tree.given, tree.nats, labels[None])
        squares, weights = squares + float(square[0]), weights + float(weight[0])
        counts = [(tree.given * label).sum(1) for label in (labels, 1 - labels)]
        tokens += int(((counts[0] > 0) & (counts[1] > 0)).sum())
        for side, (label, count) in enumerate(zip((labels, 1 - labels), counts, strict=True)):
            mean = (tree.nats * label).sum(1) / np.maximum(count, 1)
            own[side] += (((tree.nats - mean[:, None]) * tree.given * label) ** 2).sum(), np.maximum(count - 1, 0).sum()
    noise = tuple(sqrt(square / count) if count else 0.0 for square, count in own)
    return {"tokens": tokens, "nats": sqrt(squares / weights) if weights else 0.0, "noise": noise}
