"""The law of S against the tables of the literature's arithmetic, and against drafts that are drawn."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.stats.speedup import best_length, by_batch, crossover, drafted_cost, speedup, tokens_expected, verify_cost

FREE = {40: 1.0}  # a pass over 40 rows takes as long as a plain step


@pytest.mark.parametrize(
    ("chance", "length", "found"),
    [
        (0.80, 3, (1.64, 1.55, 1.44, 1.36)),
        (0.85, 4, (1.80, 1.69, 1.55, 1.45)),
        (0.90, 5, (2.01, 1.87, 1.71, 1.58)),
        (0.95, 9, (2.36, 2.18, 1.95, 1.77)),
        (0.98, 15, (2.77, 2.51, 2.22, 1.99)),
    ],
)
def test_the_best_length_and_gain_of_free_verification_are_those_of_the_published_arithmetic(chance, length, found):
    assert best_length([chance] * 30, 0.266, FREE)[0] == length
    for cost, gain in zip((0.266, 0.30, 0.35, 0.40), found, strict=True):
        assert best_length([chance] * 30, cost, FREE)[1] == pytest.approx(gain, abs=0.006)


@pytest.mark.parametrize(
    ("first", "second", "lengths", "gain"),
    [(0.90, 0.60, (6, 2), 2.35), (0.95, 0.60, (10, 2), 2.84)],
)
def test_two_levels_gain_what_the_arithmetic_says(first, second, lengths, gain):
    emitted = tokens_expected([second] * lengths[1])
    cost = drafted_cost([0.27, 0.065], [(lengths[1], emitted)])
    found = speedup(tokens_expected([first] * lengths[0]), lengths[0], cost, 1.0)
    assert found == pytest.approx(gain, abs=0.006)


def test_three_levels_are_two_whose_lower_is_two():
    under = drafted_cost([0.1, 0.02], [(3, 2.5)])
    assert drafted_cost([0.3, 0.1, 0.02], [(4, 3.0), (3, 2.5)]) == pytest.approx((4 * under + 0.3) / 3.0)
    assert drafted_cost([0.3], []) == 0.3


@given(st.lists(st.floats(0, 1), max_size=8))
def test_tokens_expected_are_those_of_all_ways_a_draft_can_end(chances):
    ends = [1 - chance for chance in chances] + [1.0]
    reached = np.cumprod([1.0, *chances])
    assert tokens_expected(chances) == pytest.approx(
        sum((kept + 1) * reached[kept] * ends[kept] for kept in range(len(chances) + 1))
    )


def test_a_pass_costs_what_was_measured_and_between_on_a_line_and_beyond_nobody_knows():
    known = {3: 1.2, 9: 1.8}
    assert [verify_cost(known, rows) for rows in (1, 2, 3, 6, 9)] == pytest.approx([1.0, 1.1, 1.2, 1.5, 1.8])
    assert (verify_cost(known, 10), verify_cost(known, 0.5), verify_cost({}, 2)) == (None, None, None)


def test_a_draft_that_never_pays_is_plain_decoding_and_one_is_chosen_only_where_its_pass_was_timed():
    assert best_length([0.1] * 8, 0.5, FREE) == (0, 1.0)
    assert best_length([], 0.1, FREE) == (0, 1.0)
    assert best_length([0.99] * 8, 0.1, {4: 1.0})[0] == 3


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=6), st.floats(0, 2), st.floats(1, 4))
def test_the_best_length_is_the_best_of_all(chances, cost, verify):
    known = {7: verify}
    every = {0: 1.0} | {
        length: tokens_expected(chances[:length]) / (1 + (verify - 1) * length / 6 + length * cost)
        for length in range(1, len(chances) + 1)
    }
    length, gain = best_length(chances, cost, known)
    assert gain == pytest.approx(max(every.values()))
    assert every[length] == pytest.approx(gain)


def test_a_larger_batch_whose_rows_cost_more_gains_less_until_nothing_is_gained():
    passes = {(count, count * rows): 1 + 0.02 * count * rows for count in (1, 4, 16, 64) for rows in (1, 2, 5)}
    steps = {count: 0.3 + 0.01 * count for count in (1, 4, 16, 64)}
    gains = by_batch([0.9] * 4, 0.31 / 1.02, passes, steps, 4)
    plain, verified = 1 + 0.02 * 16, 1 + 0.02 * 80
    assert gains[16] == pytest.approx(tokens_expected([0.9] * 4) / (verified / plain + 4 * 0.46 / plain))
    assert list(gains.values()) == sorted(gains.values(), reverse=True)
    ends = crossover(gains)
    assert ends is not None
    assert 16 < ends < 64
    chosen = by_batch([0.9] * 4, 0.31 / 1.02, passes, steps)
    assert all(chosen[count] >= max(1.0, gain) - 1e-12 for count, gain in gains.items())


def test_what_costs_nothing_to_draft_is_foretold_by_what_is_verified_alone():
    passes = {(4, 4): 1.0, (4, 12): 1.5}
    assert by_batch([1.0, 1.0], 0.0, passes, {}, 2) == {4: pytest.approx(3 / 1.5)}
    assert by_batch([1.0], 0.0, {(4, 12): 1.5}, {}, 2) == {}, "no plain pass was timed"
    assert by_batch([1.0], 0.0, passes, {}, 9) == {}, "nor one over so many rows"


def test_where_drafting_stops_paying_lies_between_two_batches():
    assert crossover({}) is None
    assert crossover({1: 2.0, 16: 1.1}) is None
    assert crossover({4: 0.9, 1: 1.0}) == 1.0
    assert crossover({1: 2.0, 4: 1.5, 16: 0.5}) == pytest.approx(8.0)
