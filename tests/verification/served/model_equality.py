"""Model Equality Testing's test of two samples (Gao et al. 2024), written anew from what it does.

The statistic is an unbiased MMD² over pairs of answers to one prompt; their kernel is the share of characters that are
the same at the same place, up to a length and padded to it. Deals go over all answers at once, whatever their prompts.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

LENGTH = 150  # characters that are compared


def p_value(
    one: Sequence[Sequence[str]], other: Sequence[Sequence[str]], generator: np.random.Generator, deals: int,
    within: bool = False,
) -> float:  # fmt: skip
    """The share of deals that are at least as far apart. one, other: texts by prompt, as many of each prompt and of
    both. within: answers are dealt within their prompts, as the published test does not."""
    similar = np.stack([kernel([*mine, *its]) for mine, its in zip(one, other, strict=True)])
    prompts, answers, _ = similar.shape
    own = np.tile(np.repeat([1.0, 0.0], answers // 2), (deals + 1, prompts, 1))
    if within:
        own[1:] = generator.permuted(own[1:], axis=2)
    else:
        own[1:] = generator.permuted(own[1:].reshape(deals, -1), axis=1).reshape(deals, prompts, answers)
    found = distances(similar, own)
    return float((found[1:] >= found[0] - 1e-12).mean())


def kernel(texts: Sequence[str]) -> NDArray:
    """(n, n): of each two texts the share of places that are the same."""
    codes = np.zeros((len(texts), LENGTH), np.int32)
    for row, text in enumerate(texts):
        codes[row, : min(len(text), LENGTH)] = [ord(one) for one in text[:LENGTH]]
    return (codes[:, None] == codes).mean(2)


def distances(similar: NDArray, first: NDArray) -> NDArray:
    """MMD² of each deal: (deals,). similar: (prompts, n, n). first: (deals, prompts, n), 1 of the first
    sample."""
    apart = 1 - np.eye(similar.shape[1])
    second = 1 - first

    def mean(these: NDArray, those: NDArray) -> NDArray:
        near = np.einsum("dpi,pij,dpj->d", these, similar * apart, those, optimize=True)
        return near / np.einsum("dpi,ij,dpj->d", these, apart, those, optimize=True)

    return mean(first, first) - 2 * mean(first, second) + mean(second, second)
