"""Costs and chances against what was planted, windows against every other window."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import nnls

from qualgate.speculation.control import COST_MEMORY, DAMPING, Acceptance, Costs, PassCost, window
from qualgate.speculation.propose import Draft

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


@settings(max_examples=50)
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


def test_plain_passes_leave_what_they_cannot_tell_apart_as_it_was_learned():
    cost = PassCost(1e-3, 4e-4, 1e-4)
    costs = Costs()
    learned(passes(cost, 200), costs)
    rng = random.Random(2)
    plain = learned(((32, 32, cost.seconds(32, 32) * rng.uniform(0.95, 1.05)) for _ in range(1000)), costs)
    assert abs_error(plain, cost) < 0.1


def test_costs_follow_a_machine_that_becomes_slower():
    costs = Costs()
    slower = PassCost(4e-3, 2e-4, 3e-4)
    learned(passes(PassCost(2e-3, 1e-4, 1.5e-4), 300), costs)
    assert abs_error(learned(passes(slower, 300, seed=2), costs), slower) < 0.02


def test_a_pass_that_was_held_up_hardly_counts():
    cost = PassCost(2e-3, 1e-4, 1e-4)
    costs = Costs()
    learned(passes(cost, 200), costs)
    assert abs_error(learned([(16, 32, 50 * cost.seconds(16, 32))], costs), cost) < 0.03


def test_a_pass_that_took_no_time_tells_nothing():
    costs = Costs()
    before = costs.now
    assert learned([(4, 8, 0.0), (4, 8, float("nan")), (0, 0, 1.0)], costs) == before


def draft(matched: int = 8, size: int = 16, kind="baseline") -> Draft:
    return Draft(tuple(range(size)), kind, matched)


def said(agreed: int) -> list[int]:
    """What the model says of such a draft: so many of its tokens, then another one."""
    return [*range(agreed), -1]


def drawn(chance: float, rng: random.Random, most: int = 16) -> int:
    agreed = 0
    while agreed < most and rng.random() < chance:
        agreed += 1
    return agreed


@pytest.mark.parametrize("chance", [0.1, 0.5, 0.9])
def test_chances_become_the_planted_ones_and_forget_what_was(chance):
    acceptance = Acceptance()
    rng = random.Random(3)
    for planted in (0.7, chance):
        for _ in range(3000):
            acceptance.observe(draft(0, 4), said(drawn(planted, rng, 4)))
    assert acceptance.chances(draft(0, 1)) == pytest.approx([chance], abs=0.1)


def test_chances_are_kept_by_kind_and_by_how_many_tokens_agreed():
    acceptance = Acceptance()
    before = acceptance.chances(draft(kind="own"))
    for _ in range(200):
        acceptance.observe(draft(2), said(0))
        acceptance.observe(draft(8), said(16))
    assert acceptance.chances(draft(2))[0] < 0.1
    assert acceptance.chances(draft(8))[0] > 0.9
    assert acceptance.chances(draft(2))[6:] == acceptance.chances(draft(8, 10))
    assert acceptance.chances(draft(kind="own")) == before


def test_before_anything_is_seen_a_longer_match_promises_more():
    chances = Acceptance().chances(draft(0, 64))
    assert all(0 < one <= other < 1 for one, other in pairwise(chances))


def test_what_follows_the_first_other_token_tells_nothing():
    one, other = Acceptance(), Acceptance()
    one.observe(draft(), [0, 1, -1])
    other.observe(draft(), [0, 1, -1, 3, 4, -1])
    assert one.chances(draft()) == other.chances(draft())


def test_a_draft_that_was_not_verified_is_judged_by_what_was_said_in_its_place():
    acceptance = Acceptance()
    for _ in range(50):
        acceptance.observe(draft(0), said(0))
    low = acceptance.chances(draft(0))[0]
    for _ in range(50):
        acceptance.observe(draft(0), [0])  # a plain step
    assert acceptance.chances(draft(0))[0] > low + 0.1


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


def test_the_more_sequences_share_a_pass_the_shorter_the_drafts():
    windows = [window([0.8] * 32, PassCost(3e-3, 5e-5, 1e-4), sequences) for sequences in (1, 4, 16, 64)]
    assert windows == sorted(windows, reverse=True)
    assert windows[0] > 2 * windows[-1] > 0


@pytest.mark.parametrize("cost", [PassCost(3e-3, 2e-4, 5e-5), PassCost(1e-3, 1e-4, 1e-4), PassCost(1e-3, 5e-5, 4e-4)])
@pytest.mark.parametrize("chance", [0.0, 0.3, 0.6, 0.9, 0.98])
def test_what_is_learned_on_the_way_comes_near_the_best_fixed_window(cost, chance):
    sequences, rng = 16, random.Random(4)
    costs, acceptance = Costs(), Acceptance()
    tokens = seconds = 0.0
    for _ in range(400):
        proposed = draft()
        windows = [window(acceptance.chances(proposed), costs.now, sequences) for _ in range(sequences)]
        took = cost.seconds(sequences, sequences + sum(windows)) * rng.uniform(0.9, 1.1)
        costs.observe(sequences, sequences + sum(windows), took)
        for w in windows:
            now = said(drawn(chance, rng))[: w + 1]
            acceptance.observe(proposed, now)
            tokens += len(now)
        seconds += took
    best = max(rate([chance] * 16, w, cost, sequences) for w in range(17))
    assert tokens / seconds > 0.97 * best
