"""Slices of the rows that are drawn: their draws are what they are named for, and they hold on a few."""

from __future__ import annotations

import numpy as np
import pytest

from qualgate.gate.peers.rule import Outcomes
from tests.verification.verdicts import nights, peer_rules
from tests.verification.verdicts.clustered_errors import CELLS, said, wrongly
from tests.verification.verdicts.early_stopping import early, fixed_pairs
from tests.verification.verdicts.peeking import peeking
from tests.verification.verdicts.times import LIMIT, Cell, machine

# ------------------------------------------------------------------------------------------------ stopping early


def test_early_stopping_saves_cases_both_ways():
    identical, twice, worst = early(100, (0.05,), (0.10,))
    assert identical.measured["mean"] > 0.25
    assert twice.measured["mean"] > 0.25
    assert fixed_pairs(0.05, 0.05, beyond=False) < fixed_pairs(0.05, 0.05, beyond=True)
    assert min(identical.measured["least_power"], twice.measured["least_power"]) > 0.85
    assert identical.measured["longer"] > 1
    assert worst.measured["mean"] < max(one["list"] / one["fixed"] for one in worst.rounds) + 1e-9


def test_the_best_moment_to_look_is_no_better_than_alpha():
    row = peeking(8_000, 200)
    assert row.met
    assert row.measured["schedules"] >= 8_000


# --------------------------------------------------------------------------------------------------------- times


def test_the_drawn_machine_has_the_spread_and_the_correlation_it_is_named_for():
    series = machine(40_000, 0.8, np.random.default_rng(1))
    assert series.std() == pytest.approx(1, abs=0.05)
    assert np.corrcoef(series[1:], series[:-1])[0, 1] == pytest.approx(0.8, abs=0.02)


@pytest.mark.parametrize("cell", [
    Cell(speed="log", rho=0.95, turns=300), Cell(speed="level", rho=0.8, turns=60),
    Cell(speed="pareto", rho=0.5, turns=60), Cell(speed="own", rho=0.0, turns=60),
    Cell(speed="log", rho=0.95, turns=60, percentile=50),
])  # fmt: skip
def test_at_the_limit_neither_verdict_comes_more_often_than_alpha(cell):
    generator, draws = np.random.default_rng(3), 200 if cell.percentile is None else 60
    approved, blocked = np.mean([cell.decided(generator) for _ in range(draws)], axis=0)
    assert max(approved, blocked) <= 0.05 + 3 * (0.05 * 0.95 / draws) ** 0.5


@pytest.mark.parametrize(
    ("rho", "truth", "word"), [(0.0, 1.0, "approve"), (0.95, 1.0, "approve"), (0.8, 1 + 2 * (LIMIT - 1), "block")]
)
def test_sixty_batches_approve_an_equal_variant_and_block_one_twice_the_allowance_slower(rho, truth, word):
    generator, cell = np.random.default_rng(4), Cell(speed="log", rho=rho, turns=60, truth=truth)
    approved, blocked = np.mean([cell.decided(generator) for _ in range(150)], axis=0)
    assert {"approve": approved, "block": blocked}[word] >= 0.9


# -------------------------------------------------------------------------------------------------------- nights


def test_a_slice_of_the_years_holds_the_goal_and_the_oracle_agrees(monkeypatch):
    monkeypatch.setattr(nights, "FALLS", dict(list(nights.FALLS.items())[:2]))
    monkeypatch.setattr(nights, "QUIET", {"400 cases, 20 % waver": nights.QUIET["400 cases, 20 % waver"]})
    [row] = nights.measured_rows(quick=True)
    assert row.met is True
    assert row.measured["oracle_differs"] < 1e-9


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


def test_the_table_of_pairs_gives_the_outcomes_that_the_cases_themselves_give():
    before = {f"q{i}": float(i < 14) for i in range(20)}
    after = {f"q{i}": float(i < 11 or i in (15, 16)) for i in range(20)}  # 3 lost, 2 gained, 11 right on both
    made, direct = peer_rules.outcomes(3, 2, 11, n=20), Outcomes.of("made", "exact_match", before, after)
    for side in ("baseline", "variant", "difference"):
        one, other = getattr(made, side), getattr(direct, side)
        assert (one.n, one.mean, one.sd) == pytest.approx((other.n, other.mean, other.sd))
    assert (made.lost, made.gained, made.paired_level) == (direct.lost, direct.gained, direct.paired_level)


def test_a_difference_of_means_needs_the_cases_of_the_textbook_formula():
    found = peer_rules.peer_cases(peer_rules.UNPAIRED["sglang_minus5"], 0.03, 20_000)
    assert found == pytest.approx((1.645 + 0.842) ** 2 * 2 * 0.755 * 0.245 / 0.03**2, rel=0.06)


def test_a_slice_reproduces_the_known_false_passes():
    lost, gained, both = peer_rules._tables(1000, 0.03, 0.07, 4000, np.random.default_rng(1))
    assert (np.mean(lost - gained), np.mean(lost + gained)) == pytest.approx((30, 70), abs=0.5)
    assert np.mean(both + lost) == pytest.approx(755, abs=1)
    rounds, rows = peer_rules.measure(quick=True)
    shares = {one["rule"]: one["false_pass"] for one in rounds if "false_pass" in one}
    assert shares["nel_v1"] < 0.01
    assert shares["trt_hypothesis"] == pytest.approx(0.62, abs=0.04)
    assert [row["id"] for row in rows] == ["peers.cases", "peers.false_pass"]
    assert {row["met"] for row in rows} == {None}  # a slice is no proof
    assert rows[0]["measured"]["least_share_of_2pq_over_disagreement"] > 0.8


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
    assert [said(CELLS[-1], sound, after, labels) for after in (sound, 0 * sound)] == ["approve", "block"]
