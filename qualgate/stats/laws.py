"""Do two samplers draw by one law? By several answers of each to the same prompts, and by nothing that they tell.

If they do, it is chance which of a prompt's answers came from whom: so they are dealt out anew, within each prompt, and
the p-value is the share of deals that look at least as different (its own among them). That is exact for any law, any
prompts and any number of answers of each.

What is looked at are beginnings. Answers to one prompt part like a tree, and two laws that differ in one token's odds
differ in how many of each go on with it. So of every beginning that some of a prompt's answers share, at least two and
not all,

    sum of (a / m - b / n)^2 / (a + b),    a of one sampler's m answers and b of the other's n begin so

Each set of answers counts once, however long a beginning it shares. A kernel that compares answers place by place
(Gao et al. 2024, Model Equality Testing: MMD with a Hamming kernel) adds the noise of all that comes after they parted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DEALS = 1999

Answers = Sequence[Sequence[int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class SameLaw:
    """p: of all prompts together; 1 where no answers part. prompt: where the two differ most, by its place in the list
    (None: nowhere); there `count` of each one's `of` answers share a beginning of `length` tokens."""

    p: float
    prompt: int | None = None
    length: int = 0
    count: tuple[int, int] = (0, 0)
    of: tuple[int, int] = (0, 0)


def same_law(prompts: Sequence[tuple[Answers, Answers]], seed: int = 0, deals: int = DEALS) -> SameLaw:
    """prompts: of each the tokens of one sampler's answers and of the other's. seed: of the deals."""
    generator = np.random.default_rng(seed)
    dealt, most, found = np.zeros(deals + 1), 0.0, SameLaw(p=1.0)
    for number, (one, other) in enumerate(prompts):
        shared = beginnings([*one, *other])
        if not (one and other and shared):
            continue
        members = np.zeros((len(shared), len(one) + len(other)))
        for row, (_, who) in enumerate(shared):
            members[row, who] = 1.0
        labels = np.repeat([1 / len(one), -1 / len(other)], [len(one), len(other)])
        every = np.vstack([labels, generator.permuted(np.tile(labels, (deals, 1)), axis=1)])
        parts = (every @ members.T) ** 2 / members.sum(1)
        dealt += parts.sum(1)
        if parts[0].max() > most:
            most, row = float(parts[0].max()), int(parts[0].argmax())
            mine = int(members[row, : len(one)].sum())
            found = SameLaw(
                p=1.0, prompt=number, length=shared[row][0], of=(len(one), len(other)),
                count=(mine, int(members[row].sum()) - mine),
            )  # fmt: skip
    at_least = 1 + int((dealt[1:] >= dealt[0] - 1e-9 * max(1.0, dealt[0])).sum())
    return SameLaw(
        p=at_least / (deals + 1), prompt=found.prompt, length=found.length, count=found.count, of=found.of
    )  # fmt: skip


def beginnings(answers: Answers) -> list[tuple[int, NDArray[np.intp]]]:
    """Each set of at least two and not all answers that share a beginning: the longest such, in tokens, and who they
    are. That an answer ends is told from its going on."""
    found, open_ = [], [(0, list(range(len(answers))))]
    while open_:
        length, who = open_.pop()
        nexts: dict[int | None, list[int]] = {}
        for index in who:
            ends = len(answers[index]) == length
            nexts.setdefault(None if ends else answers[index][length], []).append(index)
        if (len(nexts) > 1 or None in nexts) and len(who) < len(answers):
            found.append((length, np.array(who)))
        for token, those in nexts.items():
            if token is not None and len(those) > 1:
                open_.append((length + 1, those))
            elif len(those) > 1 and len(nexts) > 1:
                found.append((length, np.array(those)))
    return found
