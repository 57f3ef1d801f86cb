"""The bound on alarms holds, found by counting every outcome; and draws that do not fit are found when it was said."""

from __future__ import annotations

from itertools import product
from math import factorial, inf, prod

import numpy as np
import pytest

from tests.verification.lossless.fits import chance_bound, g_statistic

LAWS = [(0.5, 0.5), (0.9, 0.1), (0.99, 0.01), (0.2, 0.3, 0.5), (0.98, 0.01, 0.01), (0.25, 0.25, 0.25, 0.25)]


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize("count", [1, 5, 20])
def test_no_statistic_is_as_large_more_often_than_the_bound_says(law, count):
    outcomes = []
    for seen in product(range(count + 1), repeat=len(law)):
        if sum(seen) != count:
            continue
        chance = factorial(count) * prod(p**times / factorial(times) for p, times in zip(law, seen, strict=True))
        outcomes.append((g_statistic(dict(enumerate(seen)), dict(enumerate(law))), chance))
    assert sum(chance for _, chance in outcomes) == pytest.approx(1)
    for limit, _ in outcomes:
        assert sum(chance for g, chance in outcomes if g >= limit) <= chance_bound(limit, len(law)) + 1e-12


def test_the_statistic_by_hand():
    assert g_statistic({"a": 3, "b": 1}, {"a": 0.5, "b": 0.5}) == pytest.approx(2 * (3 * np.log(1.5) + np.log(0.5)))
    assert g_statistic({"a": 2, "b": 2}, {"a": 0.5, "b": 0.5}) == 0.0
    assert g_statistic({"a": 2, "b": 1}, {"a": 1.0, "b": 0.0}) == inf
    assert g_statistic({"a": 2, "c": 0}, {"a": 1.0}) == 0.0
