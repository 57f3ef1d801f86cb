"""Costs against what was planted, windows against every other window."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import nnls

from qualgate.engine.speculation.control import COST_MEMORY, DAMPING, Costs, PassCost, window

PLANTED = (
    PassCost(3e-3, 1e-4, 5e-5),
    PassCost(1e-4, 0.0, 3e-4),
    PassCost(0.0, 5e-4, 1e-4),
)


def passes(cost: PassCost, count: int, seed: int = 1, noise: float = 0.0):
    """(sequences, rows, seconds) of passes with drafts of every length."""
    rng = random.Random(seed)
    for _ in range(count):
        sequences = rng.randint(1, 64)
        rows = sequences + rng.randint(0, 8 * sequences)
        yield sequences, rows, cost.seconds(sequences, rows) * (1 + noise * rng.uniform(-1, 1))


def learned(observed, costs: Costs | None = None) -> PassCost:
    costs = costs or Costs()
    for one in observed:
        costs.observe(*one)
    return costs.now


@pytest.mark.parametrize("cost", PLANTED)
def test_costs_become_the_planted_ones(cost):
    assert abs_error(learned(passes(cost, 200)), cost) < 0.01
    assert abs_error(learned(passes(cost, 400, noise=0.1)), cost) < 0.1


def abs_error(found: PassCost, cost: PassCost) -> float:
    """The largest relative error of what a pass is said to take, with and without drafts, few and many."""
    shapes = [(1, 1), (1, 9), (16, 16), (16, 48), (64, 64), (64, 200)]
    return max(abs(found.seconds(*shape) / cost.seconds(*shape) - 1) for shape in shapes)


@given(
    st.lists(st.tuples(st.integers(1, 64), st.integers(0, 300), st.floats(1e-4, 1.0)), min_size=1, max_size=12),
)
def test_costs_are_the_non_negative_least_squares_of_what_was_observed(drawn):
    """Of relative errors, older ones forgotten, drawn to the estimate before: by another solver."""
    costs = Costs()
    features: list[list[float]] = []
    for sequences, drafted, seconds in drawn:
        before = [costs.now.fixed, costs.now.sequence, costs.now.row]
        rows = sequences + drafted
        costs.observe(sequences, rows, seconds)
        features.append([1 / seconds, sequences / seconds, rows / seconds])
        if len(features) == 1:
            assert costs.now.seconds(sequences, rows) == pytest.approx(seconds)
            continue
        weights = np.sqrt(COST_MEMORY ** np.arange(len(features))[::-1])
        observed = np.array(features) * weights[:, None]
        damping = np.diag(np.sqrt(DAMPING * (observed**2).sum(0)))
        wanted, _ = nnls(np.vstack([observed, damping]), np.concatenate([weights, damping @ before]))
        found = np.array([costs.now.fixed, costs.now.sequence, costs.now.row])
        assert found.min() >= 0
        scale = np.sqrt((observed**2).sum(0))  # each cost in shares of a pass
        assert found * scale == pytest.approx(wanted * scale, abs=1e-6)


def test_costs_follow_a_machine_that_becomes_slower():
    costs = Costs()
    slower = PassCost(4e-3, 2e-4, 3e-4)
    learned(passes(PassCost(2e-3, 1e-4, 1.5e-4), 300), costs)
    assert abs_error(learned(passes(slower, 300, seed=2), costs), slower) < 0.02


def test_a_pass_that_took_no_time_tells_nothing():
    costs = Costs()
    before = costs.now
    assert learned([(4, 8, 0.0), (4, 8, float("nan")), (0, 0, 1.0)], costs) == before


def rate(chances: list[float], w: int, cost: PassCost, sequences: int) -> float:
    """Tokens a second if every row verified w, from the chance of each number of tokens."""
    tokens, reached = 0.0, 1.0
    for agreed in range(w):
        tokens += reached * (1 - chances[agreed]) * (agreed + 1)
        reached *= chances[agreed]
    tokens += reached * (w + 1)
    return sequences * tokens / cost.seconds(sequences, sequences * (1 + w))


@given(
    st.lists(st.floats(0, 1), max_size=24),
    st.builds(PassCost, st.floats(0, 1e-2), st.floats(0, 1e-3), st.floats(1e-6, 1e-3)),
    st.integers(1, 64),
)
def test_no_other_window_says_more_tokens_a_second(chances, cost, sequences):
    chosen = rate(chances, window(chances, cost, sequences), cost, sequences)
    assert chosen >= max(rate(chances, w, cost, sequences) for w in range(len(chances) + 1)) * (1 - 1e-9)


def test_drafts_that_do_not_pay_are_not_verified():
    cheap, dear = PassCost(3e-3, 1e-4, 1e-5), PassCost(1e-5, 1e-5, 1e-3)
    assert window([0.9] * 16, cheap, 4) == 16
    assert window([0.001] * 16, cheap, 64) == 0
    assert window([0.9] * 16, dear, 64) == 0
    assert window([0.0] * 16, cheap, 1) == 0
    assert window([], cheap, 1) == 0
    assert window([0.9] * 16, PassCost(0.0, 0.0, 0.0), 1) == 0
