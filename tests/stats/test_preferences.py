"""Balanced styles cancel a judge's taste, whatever its form, and the sign test is scipy's."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import binomtest

from qualgate.stats.preferences import balanced, leaning

STYLES = [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]


@pytest.mark.parametrize("seed", range(5))
def test_each_style_has_as_many_pairs_left_as_its_opposite_and_the_smaller_side_all_of_its_own(seed):
    draw = np.random.default_rng(seed)
    styles = [STYLES[one] for one in draw.choice(9, 300, p=draw.dirichlet(np.ones(9)))]
    keep = balanced(styles, [f"c{number}" for number in range(300)])
    left = [style for style, stays in zip(styles, keep, strict=True) if stays]
    for one, two in STYLES:
        kept = left.count((one, two))
        assert kept == left.count((-one, -two))
        assert kept == (
            styles.count((0, 0)) if one == two == 0 else min(styles.count((one, two)), styles.count((-one, -two)))
        )


def test_what_is_left_out_is_drawn_by_names_and_not_by_the_order_of_pairs():
    styles = [(1, 0)] * 30 + [(-1, 0)] * 10 + [(0, 0)] * 5
    names = [f"case {number}" for number in range(45)]
    keep = balanced(styles, names)
    assert keep.sum() == 25
    turned = balanced(styles[::-1], names[::-1])[::-1]
    assert (keep == turned).all()
    assert keep[:30].tolist() != [True] * 10 + [False] * 20  # not the first ones


@pytest.mark.parametrize(("toward", "away"), [(0, 0), (1, 0), (5, 5), (3, 9), (30, 12), (0, 25)])
def test_the_sign_test_is_scipys(toward, away):
    expected = binomtest(toward, toward + away).pvalue if toward + away else 1.0
    assert leaning(toward, away) == pytest.approx(expected, rel=1e-12)
