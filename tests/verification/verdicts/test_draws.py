"""Slices of the rows that are drawn: their draws are what they are named for, and they hold on a few."""

from __future__ import annotations

import numpy as np
import pytest

from tests.verification.verdicts import four_arms, nights, peer_rules
from tests.verification.verdicts.clustered_errors import CELLS, word_of, wrongly
from tests.verification.verdicts.tables import ALPHA, rate
from tests.verification.verdicts.times import LIMIT, Cell, machine

# --------------------------------------------------------------------------------------------------------- times


def test_the_drawn_machine_has_the_spread_and_the_correlation_it_is_named_for():
    series = machine(40_000, 0.8, np.random.default_rng(1))
    assert series.std() == pytest.approx(1, abs=0.05)
    assert np.corrcoef(series[1:], series[:-1])[0, 1] == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("cell", [
    Cell(speed="log", rho=0.95, turns=120), Cell(speed="level", rho=0.8, turns=60),
    Cell(speed="pareto", rho=0.5, turns=60), Cell(speed="own", rho=0.0, turns=60),
    Cell(speed="log", rho=0.95, turns=60, percentile=50),
])  # fmt: skip
def test_at_the_limit_neither_verdict_comes_more_often_than_alpha(cell):
    generator, draws = np.random.default_rng(3), 120 if cell.percentile is None else 30
    approved, blocked = rate(draws, lambda: cell.draw(generator))
    assert max(approved, blocked) <= ALPHA + 3 * (ALPHA * (1 - ALPHA) / draws) ** 0.5


@pytest.mark.parametrize(
    ("rho", "truth", "word"), [(0.0, 1.0, "approve"), (0.95, 1.0, "approve"), (0.8, 1 + 2 * (LIMIT - 1), "block")]
)
def test_sixty_batches_approve_an_equal_variant_and_block_one_twice_the_allowance_slower(rho, truth, word):
    generator, cell = np.random.default_rng(4), Cell(speed="log", rho=rho, turns=60, truth=truth)
    approved, blocked = rate(60, lambda: cell.draw(generator))
    assert {"approve": approved, "block": blocked}[word] >= 0.85


# -------------------------------------------------------------------------------------------------------- nights


def test_a_slice_of_the_years_holds_the_goal_and_the_oracle_agrees(monkeypatch):
    monkeypatch.setattr(nights, "FALLS", dict(list(nights.FALLS.items())[:2]))
    monkeypatch.setattr(nights, "QUIET", {"400 cases, 20 % waver": nights.QUIET["400 cases, 20 % waver"]})
    _, [row] = nights.measure(quick=True)
    assert row["so_far"] is True
    assert row["measured"]["oracle_differs"] < 1e-9


def test_held_against_the_approved_run_alone_a_lucky_one_would_be_a_fall_every_year():
    """What the exchangeable nights are for: a plain paired test a night, repeated, finds a fall where there is none."""
    world = nights.QUIET["400 cases, 10 % waver, approved the best of 10"]
    fallen = 0
    for year in range(6):
        x = world.year(np.random.default_rng(year))
        lost = (x[0] - x[1:]).mean(axis=1)  # every night against the approved one
        error = (x[0] - x[1:]).std(axis=1) / np.sqrt(world.cases)
        count = np.arange(1, len(lost) + 1)
        fallen += bool((lost.cumsum() / count > 4 * error / np.sqrt(count))[30:].any())
        assert not nights._told(x).falls
    assert fallen >= 4


# --------------------------------------------------------------------------------------------------- peers' rules


def test_a_difference_of_means_needs_the_cases_of_the_textbook_formula():
    found = peer_rules.peer_cases(peer_rules.UNPAIRED["sglang_minus5"], 0.03, 20_000)
    assert found == pytest.approx((1.645 + 0.842) ** 2 * 2 * 0.755 * 0.245 / 0.03**2, rel=0.06)


def test_rules_of_peers_pass_a_true_loss_as_often_as_known():
    before, after = peer_rules.drawn(200_000, 0.03, 0.07, np.random.default_rng(1))
    assert (before.mean(), (before - after).mean()) == pytest.approx((0.755, 0.03), abs=0.004)
    assert np.abs(before - after).mean() == pytest.approx(0.07, abs=0.004)
    shares = peer_rules.false_passes(150)
    assert shares["nel_v1"] < 0.02
    assert shares["trt_hypothesis"] == pytest.approx(0.62, abs=0.13)


# ------------------------------------------------------------------------------------------------ clustered cases


def test_clustered_draws_lose_the_limit_and_are_judged_by_the_gate():
    generator = np.random.default_rng(2)
    for cell in CELLS:
        labels, lost = np.repeat(np.arange(cell.clusters), cell.each), []
        for _ in range(100):
            before, after = cell.truth(cell, labels, generator)
            lost.append((before.mean() - after.mean()) / (before.mean() if cell.relative else 1))
        assert np.mean(lost) == pytest.approx(cell.limit, abs=4 * np.std(lost) / 10 + 0.003)
    rates = [wrongly(cell, 10, generator) for cell in CELLS[:6]]
    assert all(max(rate["approve"], rate["block"]) <= 0.4 for rate in rates)
    sound = np.arange(len(labels)) % 10 > 0
    assert [word_of(CELLS[-1], sound, after, labels) for after in (sound, 0 * sound)] == ["approve", "block"]


# ------------------------------------------------------------------------------------------------------- four arms

LOSING = four_arms.Cell(n=100, margin=0.10, gained=0.01)


def test_four_arms_are_drawn_as_they_are_said_to_lose():
    cell = four_arms.Cell(n=400, margin=0.05, gained=0.02, alike=0.9, at_margin=("int4+drafted",))
    right, counts = cell.draw(500, np.random.default_rng(0))
    assert counts.mean(axis=0).ravel().tolist() == pytest.approx([8, 8, 8, 8, 28, 8], abs=0.8)
    assert (right[0] & ~right[3]).sum(axis=1).tolist() == counts[:, 2, 0].tolist()
    shared = (right[1] != right[0]) & (right[2] != right[0])
    assert shared.mean() > 0.02  # of 0.04 that change in each


def test_an_arm_that_loses_the_margin_is_chosen_no_more_often_than_alpha():
    found = four_arms.Judge(LOSING.n, LOSING.margin).rates(LOSING, four_arms.TOGETHER, 0)
    assert found["wrong"] <= ALPHA + 3 * (ALPHA * (1 - ALPHA) / four_arms.TOGETHER) ** 0.5


def test_arms_that_are_each_held_to_alpha_alone_would_be_seen(monkeypatch):
    monkeypatch.setattr("qualgate.gate.four_arm.verdict.over_the_choice", lambda at, *_: (at(1), True))
    found = four_arms.Judge(LOSING.n, LOSING.margin).rates(LOSING, four_arms.TOGETHER, 0)
    assert found["wrong"] > 0.08


def test_kinds_of_draws_of_which_the_gate_says_different_things_would_be_counted(monkeypatch):
    words = iter(range(1000))
    monkeypatch.setattr(four_arms, "approved", lambda *_: str(next(words)))
    judge = four_arms.Judge(LOSING.n, LOSING.margin)
    judge.rates(LOSING, 2 * four_arms.TOGETHER, 0)
    assert any(len(set(answers)) > 1 for answers in judge.answers.values())


def test_an_interaction_is_found_where_both_changes_lose_what_neither_does():
    edges = four_arms.silent_from(60)
    assert 1 - edges.chance(0.0, 0.2) <= ALPHA < 0.5 < 1 - edges.chance(0.15, 0.2)
