"""Statistics of a judge's preferences: a sample of pairs balanced by style, and the direction of errors."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

Style = tuple[int, int]


def balanced(styles: Sequence[Style], names: Sequence[str]) -> NDArray[np.bool_]:
    """[pairs] mask of a sample in which each style is as frequent as its opposite.

    styles: of each pair, antisymmetric: (1, 0) if the variant's answer is longer, (-1, 0) if it is shorter, (0, 0) if
    both are alike, which all stay. names: unique name of each pair. A judge's taste for a style is antisymmetric, too,
    since swapping the answers swaps it. So its effect on the share of wins cancels in the sample, whatever its form:
    nothing is fitted, while a regression on style features (LMSYS's style control) assumes a linear effect. A hash of
    the names chooses which pairs of the larger side to drop, so not the judge's replies.
    """
    members: dict[Style, list[int]] = {}
    for index, style in enumerate(styles):
        members.setdefault(style, []).append(index)
    keep = np.zeros(len(styles), bool)
    for style, places in members.items():
        retained = len(places) if style == (0, 0) else len(members.get((-style[0], -style[1]), ()))
        by_hash = sorted(places, key=lambda index: sha256(names[index].encode("utf-8", "surrogatepass")).digest())
        keep[by_hash[:retained]] = True
    return keep


def leaning(toward: int, away: int) -> float:
    """Two-sided p-value of "either is as likely": the exact sign test, twice the smaller tail. 1 without any."""
    count, larger = toward + away, max(toward, away)
    if not count:
        return 1.0
    return min(1.0, 2 * float(betainc(larger, count - larger + 1, 0.5)))
