"""The bound on alarms holds, found by counting every outcome; and draws that do not fit are found when it was said."""

from __future__ import annotations

from itertools import product
from math import factorial, inf, prod

import numpy as np
import pytest
from scipy.stats import chi2

from tests.verification.lossless.fits import ALARM, answers_to_find, chance_bound, g_statistic

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


def test_a_bound_is_no_more_than_1_and_falls_to_any_alarm():
    assert chance_bound(0.0, 5) == chance_bound(8.0, 5) == 1.0
    bounds = [chance_bound(g, 5) for g in range(8, 200)]
    assert bounds == sorted(bounds, reverse=True)
    assert bounds[-1] < 1e-30
    assert chance_bound(inf, 5) == 0.0
    assert chance_bound(0.0, 1) == 1.0


def test_the_statistic_by_hand():
    assert g_statistic({"a": 3, "b": 1}, {"a": 0.5, "b": 0.5}) == pytest.approx(2 * (3 * np.log(1.5) + np.log(0.5)))
    assert g_statistic({"a": 2, "b": 2}, {"a": 0.5, "b": 0.5}) == 0.0
    assert g_statistic({"a": 2, "b": 1}, {"a": 1.0, "b": 0.0}) == inf
    assert g_statistic({"a": 2, "c": 0}, {"a": 1.0}) == 0.0


def test_so_many_answers_find_it_and_a_third_does_not():
    law, found = (0.5, 0.3, 0.2), (0.45, 0.33, 0.22)
    needed = round(answers_to_find(dict(enumerate(found)), dict(enumerate(law))))
    numbers = np.random.default_rng(3)
    rejected = {}
    for count in (needed, needed // 3):
        seen = numbers.multinomial(count, found, size=4000)
        expected = count * np.array(law)
        rejected[count] = float(np.mean(((seen - expected) ** 2 / expected).sum(-1) > chi2.isf(ALARM, 2)))
    assert rejected[needed] > 0.995
    assert rejected[needed // 3] < 0.7


def test_what_cannot_be_said_is_found_by_one_answer():
    assert answers_to_find({1: 0.5, 2: 0.5}, {1: 1.0}) == 1.0
    assert answers_to_find({1: 0.1, 2: 0.9}, {1: 0.9, 2: 0.1}) >= 1.0
