"""pass^k is the mean over all draws of k answers, and unbiased."""

from __future__ import annotations

from itertools import combinations, product
from math import comb, prod

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.stats.all_of import all_of


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=7), st.data())
def test_it_is_the_mean_over_every_set_of_k_answers(values, data):
    k = data.draw(st.integers(1, len(values)))
    sets = [min(chosen) for chosen in combinations(values, k)]
    assert all_of(k, values) == pytest.approx(sum(sets) / len(sets), abs=1e-12)


@pytest.mark.parametrize(("n", "k", "rate"), [(1, 1, 0.3), (4, 2, 0.3), (5, 3, 0.9), (6, 6, 0.5)])
def test_its_expectation_over_every_outcome_of_n_answers_is_the_rate_to_the_k(n, k, rate):
    expected = sum(
        prod(rate if one else 1 - rate for one in outcome) * all_of(k, outcome) for outcome in product((0, 1), repeat=n)
    )
    assert expected == pytest.approx(rate**k, abs=1e-12)


def test_of_right_and_wrong_answers_it_is_tau_benchs_ratio():
    for n, c in product(range(1, 9), range(9)):
        for k in range(1, n + 1) if c <= n else ():
            assert all_of(k, [1] * c + [0] * (n - c)) == pytest.approx(comb(c, k) / comb(n, k))


@pytest.mark.parametrize(("k", "values"), [(0, [1]), (2, [1]), (1, [])])
def test_more_answers_than_there_are_is_an_error(k, values):
    with pytest.raises(ValueError, match=r"pass\^k needs 1 <= k <= n"):
        all_of(k, values)
