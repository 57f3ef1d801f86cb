from __future__ import annotations

import pytest

from tests.verification.verdicts.early_decodes import measured_rows
from tests.verification.verdicts.early_stopping import early, fixed_pairs
from tests.verification.verdicts.growing_files import growing
from tests.verification.verdicts.peeking import peeking


def test_early_stopping_saves_cases_both_ways():
    identical, twice, worst = early(100, (0.05,), (0.05, 0.15), held_out=False)
    assert identical.measured["mean"] > 0.25
    assert twice.measured["mean"] > 0.25
    assert fixed_pairs(0.05, 0.05, beyond=False) < fixed_pairs(0.05, 0.05, beyond=True)
    assert min(identical.measured["least_power"], twice.measured["least_power"]) > 0.85
    assert identical.measured["longer_both"] > identical.measured["longer"] > 1, "the list for both truths is longer"
    assert worst.measured["mean"] < max(one["list"] / one["fixed"] for one in worst.rounds) + 1e-9


def test_the_best_moment_to_look_is_no_better_than_alpha():
    row = peeking(8_000, 200)
    assert row.met
    assert row.measured["schedules"] >= 8_000


@pytest.mark.proof
def test_growing_files_asked_ten_times_approve_no_more_than_alpha_with_memory_and_more_than_three_times_that_without():
    row = growing(2_000)
    assert row.met
    assert row.measured["forgetful"] > 0.15
    assert {one["margin"] for one in row.rounds} == {0.02, 0.05, 0.10}


@pytest.mark.proof
def test_a_run_that_stops_early_decodes_less_than_half_of_what_diverged_and_says_the_same():
    (row,) = measured_rows(quick=True)
    assert row.met
    for one in row.rounds:
        assert one["word"] == one["fixed_word"]
        assert one["least"] <= one["decoded"] <= one["diverged"]
