"""pass^k is the mean over all draws of k answers, and unbiased."""

from __future__ import annotations

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.stats.all_of import all_of


@given(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=1, max_size=7), st.data())
def test_it_is_the_mean_over_every_set_of_k_answers(values, data):
    k = data.draw(st.integers(1, len(values)))
    sets = [min(chosen) for chosen in combinations(values, k)]
    assert all_of(k, values) == pytest.approx(sum(sets) / len(sets), abs=1e-12)


@pytest.mark.parametrize(("k", "values"), [(0, [1]), (2, [1]), (1, [])])
def test_more_answers_than_there_are_is_an_error(k, values):
    with pytest.raises(ValueError, match=r"pass\^k needs 1 <= k <= n"):
        all_of(k, values)
