"""Noise of a round: it repeats, no two draws share it, and it is uniform; tokens are drawn in proportion."""

from __future__ import annotations

from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from qualgate.engine.speculation.chance import HashedChance, picked

LAST = 1 - 2.0**-53  # the largest number that is drawn


def numbers(count: int, seed: int = 0, case: int = 0, round: tuple[int, ...] = (0,)) -> list[float]:
    chance = HashedChance(seed=seed, case=case, round=round)
    return [chance.uniform() for _ in range(count)]


def test_numbers_repeat_and_no_two_draws_share_one():
    assert numbers(3) == numbers(3)
    cells = product((0, 1), (0, 1, -5, 2**63 - 1), ((), (0,), (1,), (0, 0), (0, 1), (1, 0), (0, 0, 0)))
    every = [number for seed, case, round in cells for number in numbers(9, seed, case, round)]
    assert len(set(every)) == len(every)


def test_a_round_within_a_round_has_chances_of_its_own():
    outer = HashedChance(seed=3, case=4, round=(7,))
    outer.uniform()
    inner = outer.within(2, 0)
    assert inner.round == (7, 2, 0)
    assert [inner.uniform() for _ in range(3)] == numbers(3, 3, 4, (7, 2, 0))


def test_numbers_are_uniform_and_neighbours_tell_nothing_of_each_other():
    """Seeded: either p-value would be below 1e-4 once in 10,000 seeds."""
    drawn = numbers(20_000) + [numbers(1, round=(said,))[0] for said in range(20_000)]
    assert min(drawn) >= 0
    assert max(drawn) < 1
    assert stats.kstest(drawn, "uniform").pvalue > 1e-4
    pairs = torch.tensor(drawn).view(-1, 2).mul(8).long()
    counts = torch.bincount(pairs[:, 0] * 8 + pairs[:, 1], minlength=64)
    assert stats.chisquare(counts.numpy()).pvalue > 1e-4
    assert all(number * 2**53 == int(number * 2**53) for number in drawn)


def test_a_chance_is_the_numbers_of_its_round_in_turn():
    first, second, third = numbers(3)
    chance = HashedChance(seed=0, case=0, round=(0,))
    assert chance.accepts(first) is False  # below, not at
    assert chance.accepts(second + 2.0**-53) is True
    weights = torch.tensor([third, 1 - third], dtype=torch.float64)
    assert chance.token(weights) == 1


@pytest.mark.parametrize(("probability", "always"), [(0.0, False), (-1.0, False), (1.0, True), (7.0, True)])
def test_certain_is_certain(probability: float, always: bool):
    chance = HashedChance(seed=0, case=0, round=())
    assert {chance.accepts(probability) for _ in range(500)} == {always}


@given(
    st.lists(st.sampled_from([0.0, 5e-324, 1e-300, 0.1, 0.3, 1.0, 1e17]), min_size=1, max_size=6).filter(any),
    st.sampled_from([0.0, 2.0**-53, 0.25, 0.5, 0.75, LAST]),
)
def test_a_token_is_where_the_running_sum_passes_the_number(weights: list[float], number: float):
    (token,) = picked(torch.tensor([weights], dtype=torch.float64), [number])
    assert weights[token] > 0.0
    whole = sum(weights)
    assert sum(weights[:token]) <= number * whole or whole < 1e-300
    assert sum(weights[: token + 1]) > number * whole or token == max(i for i, one in enumerate(weights) if one)


def test_many_rows_are_drawn_as_each_alone():
    weights = torch.rand(50, 3001, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    uniforms = numbers(50)
    together = picked(weights, uniforms)
    assert together == [picked(row[None], [one])[0] for row, one in zip(weights, uniforms, strict=True)]
    assert len(set(together)) > 40


@pytest.mark.parametrize("weights", [[0.0, 0.0], [-0.1, 1.0], [float("nan"), 1.0], [float("inf"), 1.0], [1e308, 1e308]])
def test_weights_that_mean_nothing_or_of_another_dtype_are_refused(weights: list[float]):
    with pytest.raises(ValueError, match="finite numbers of 0 or more, not all 0"):
        picked(torch.tensor([[1.0, 1.0], weights], dtype=torch.float64), [0.5, 0.5])
    with pytest.raises(ValueError, match="float32"):
        picked(torch.ones(1, 3), [0.5])
    with pytest.raises(ValueError, match=r"float64 \[2, vocabulary\]"):
        picked(torch.ones(1, 3, dtype=torch.float64), [0.5, 0.5])
