"""Permutation test of whether two samplers draw by one law, from several answers of each to the same prompts alone.

If they do, chance decides which of a prompt's answers came from which sampler. So the labels are permuted within each
prompt, and the p-value is the share of permutations that look at least as different (the observed one included). That
is exact for any law, prompts and numbers of answers, if each answer is an independent draw: an answer repeated from a
cache, or by one seed for all, is not.

The statistic compares beginnings. Answers to one prompt branch like a tree, and two laws that differ in one token's
odds differ in how many of each continue with it. For every beginning shared by at least two and not all of a prompt's
answers, let a of one sampler's m answers and b of the other's n begin so. Then

    Q = sum of (a / m - b / n)^2 / (a + b)      how far the two differ, in either direction
    L = sum of (a / m - b / n) (a + b)          whose answers are more common: who samples more sharply

over all prompts, and Q's standard score and L's squared one add up, by means and deviations over the permutations. L
detects a temperature or a cut, whose effect is small in every prompt and has the same sign in all; Q detects the rest.
Each set of answers counts once, however long its common beginning. Model Equality Testing (Gao et al. 2024) permutes
over all prompts at once, which adds the noise of how many answers to each prompt go to which sampler, and has no L.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from math import sqrt

import numpy as np
from numpy.typing import NDArray

DEALS = 1999

Answers = Sequence[Sequence[Hashable]]  # tokens of each


@dataclass(frozen=True, slots=True, kw_only=True)
class SameLaw:
    """Result of the test. p: over all prompts; 1 if no answers differ. prompt: index of the prompt with the largest
    difference (None: nowhere); there `count` of each sampler's `of` answers share a beginning of `length` tokens."""

    p: float
    prompt: int | None = None
    length: int = 0
    count: tuple[int, int] = (0, 0)
    of: tuple[int, int] = (0, 0)


def same_law(prompts: Sequence[tuple[Answers, Answers]], seed: int = 0, deals: int = DEALS) -> SameLaw:
    """Test for one law. prompts: for each, (token ids of one sampler's answers, of the other's). seed: of the
    permutations."""
    generator = np.random.default_rng(seed)
    far, sharp, largest, result = np.zeros(deals + 1), np.zeros(deals + 1), 0.0, SameLaw(p=1.0)
    for number, (first, second) in enumerate(prompts):
        shared = beginnings([*first, *second])
        if not (first and second and shared):
            continue
        own = np.repeat([1.0, 0.0], [len(first), len(second)])
        every = np.vstack([own, generator.permuted(np.tile(own, (deals, 1)), axis=1)])
        members = members_of(shared, len(own))
        parts, prompt_sharp = far_and_sharp(members, every)
        far += parts.sum(1)
        sharp += prompt_sharp
        if parts[0].max() > largest:
            largest, row = float(parts[0].max()), int(parts[0].argmax())
            count_of_first = int(members[row, : len(first)].sum())
            result = SameLaw(
                p=1.0, prompt=number, length=shared[row][0], of=(len(first), len(second)),
                count=(count_of_first, int(members[row].sum()) - count_of_first),
            )  # fmt: skip
    value = difference(far, sharp)
    return replace(result, p=float((value >= value[0] - 1e-9).mean()))


def members_of(shared: Sequence[tuple[int, NDArray[np.intp]]], answers: int) -> NDArray[np.float64]:
    """Return the sets as rows, 1 for each answer in it. answers: their number."""
    members = np.zeros((len(shared), answers))
    for row, (_, indices) in enumerate(shared):
        members[row, indices] = 1.0
    return members


def far_and_sharp(members: NDArray, labels: NDArray) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the parts of Q, [labelings, sets], and L, [labelings], of one prompt. members: [sets, answers]; labels:
    [labelings, answers], 1 for the first sampler's, as many in each."""
    count, size = labels[0].sum(), members.sum(1)
    distances = (labels / count - (1 - labels) / (labels.shape[1] - count)) @ members.T
    return distances**2 / size, distances @ size


def difference(far: NDArray, sharp: NDArray, uniform: int | None = None) -> NDArray[np.float64]:
    """Return the statistic of each labeling. uniform: how many of the first are permutations that give the means and
    deviations (None: all)."""
    return _score(far, uniform) + _score(sharp, uniform) ** 2 / sqrt(2)


def _score(values: NDArray[np.float64], uniform: int | None) -> NDArray[np.float64]:
    """Standard scores; 0 if all permutations give the same value."""
    spread, mean = float(values[:uniform].std()), values[:uniform].mean()
    return (values - mean) / spread if spread > 1e-12 else np.zeros_like(values)


def beginnings(answers: Answers) -> list[tuple[int, NDArray[np.intp]]]:
    """(length in tokens, indices) of each set of at least two and not all answers with a common longest beginning. The
    end of an answer counts as a token."""
    shared, open_ = [], [(0, list(range(len(answers))))]
    while open_:
        length, who = open_.pop()
        nexts: dict[Hashable, list[int]] = {}
        for index in who:
            ends = len(answers[index]) == length
            nexts.setdefault(None if ends else answers[index][length], []).append(index)
        if (len(nexts) > 1 or None in nexts) and len(who) < len(answers):
            shared.append((length, np.array(who)))
        for token, those in nexts.items():
            if token is not None and len(those) > 1:
                open_.append((length + 1, those))
            elif len(those) > 1 and len(nexts) > 1:
                shared.append((length, np.array(those)))
    return shared
