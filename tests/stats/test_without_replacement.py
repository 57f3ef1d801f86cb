"""Whether a list will reach its bar: enumerated over every order of small lists, and by drawing larger ones."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from qualgate.stats.without_replacement import p_reached


@pytest.mark.parametrize(("units", "bar"), [(12, 3), (14, 2), (10, 5), (16, 1)])
def test_in_every_order_of_a_list_at_its_bar_hardly_one_passes_at_any_moment(units, bar) -> None:
    passed = orders = 0
    for places in combinations(range(units), bar):
        listed = np.zeros(units)
        listed[list(places)] = 1
        orders += 1
        passed += min(p_reached(listed[:seen], bar, units) for seen in range(units + 1)) <= 0.1
    assert passed <= 0.1 * orders


def test_a_list_over_its_bar_rarely_passes_at_any_of_its_moments() -> None:
    generator = np.random.default_rng(1)
    for units, bar, sizes in ((200, 11, 1), (40, 101, 50)):
        passed = 0
        for _ in range(200):
            listed = np.zeros(units)
            if sizes == 1:
                listed[:bar] = 1
            else:
                listed[:3] = 34  # three clusters hold all of it
            listed = generator.permutation(listed)
            passed += min(p_reached(listed[:n], bar, units, largest=sizes) for n in range(4, units, 4)) <= 0.05
        assert passed <= 200 * 0.05 + 3 * (200 * 0.05 * 0.95) ** 0.5


def test_the_end_of_the_list_knows() -> None:
    assert p_reached([1, 0, 0, 1], 3, 5) > 0.05, "the one to come may be the third"
    assert p_reached([1, 0, 0, 1, 0], 3, 5) == 0
    assert p_reached([1, 0, 0, 1, 1], 3, 5) == 1
    assert p_reached([0, 0, 0], 3, 5) == 0, "two are left"
    assert p_reached([], 3, 5) == 1


def test_none_of_seventy_is_enough_for_five_percent_of_a_long_list_and_one_in_fifty_of_some_hundreds() -> None:
    assert p_reached(np.zeros(55), 501, 10_000) > 0.05 >= p_reached(np.zeros(70), 501, 10_000)
    some = np.tile(np.eye(1, 50)[0], 20)
    assert p_reached(some[:100], 501, 10_000) > 0.05 >= p_reached(some[:600], 501, 10_000)


@pytest.mark.parametrize(
    "wrong", [{"seen": [2.0]}, {"seen": [-1.0]}, {"seen": [0.0] * 6}, {"bar": 0}, {"bar": float("nan")}]
)
def test_what_is_no_list_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match="within the list"):
        p_reached(**{"seen": [0.0], "bar": 2, "units": 5} | wrong)
