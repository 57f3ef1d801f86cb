"""Statistics of a judge's preferences: a sample of pairs whose style is balanced, and which way errors lean."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256

import numpy as np
from numpy.typing import NDArray
from scipy.special import betainc

Style = tuple[int, int]


def balanced(styles: Sequence[Style], names: Sequence[str]) -> NDArray[np.bool_]:
    """[pairs] which of them stay, so that each style has as many as its opposite.

    styles: of each pair, antisymmetric: (1, 0) where the variant's answer is longer, (-1, 0) where it is shorter, (0,
    0) where both are alike, which all stay. names: of each pair, one of their kind. A judge's taste for a style is
    antisymmetric too, since swapping the answers swaps it. What it adds to a share of wins so cancels in the mean of
    those that stay, of any form: nothing is fitted, where a regression on style features (LMSYS's style control) takes
    it to be linear in them. Which pairs of the larger side are left out is drawn by a hash of their names, so not by
    what the judge said.
    """
    members: dict[Style, list[int]] = {}
    for place, style in enumerate(styles):
        members.setdefault(style, []).append(place)
    keep = np.zeros(len(styles), bool)
    for style, places in members.items():
        most = len(places) if style == (0, 0) else len(members.get((-style[0], -style[1]), ()))
        drawn = sorted(places, key=lambda place: sha256(names[place].encode("utf-8", "surrogatepass")).digest())
        keep[drawn[:most]] = True
    return keep


def leaning(toward: int, away: int) -> float:
    """Two-sided p-value of "either is as likely": the exact sign test, twice the smaller tail. 1 without any."""
    count, most = toward + away, max(toward, away)
    if not count:
        return 1.0
    return min(1.0, 2 * float(betainc(most, count - most + 1, 0.5)))
