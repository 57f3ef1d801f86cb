"""The slice of the interaction rows that runs with the suite."""

from __future__ import annotations

import numpy as np
import pytest

from tests.verification.verdicts import choice_of_arms
from tests.verification.verdicts.four_arms import outcomes, rows


def test_the_planted_outcomes_are_fine_alone_and_two_points_worse_together():
    table = outcomes(400_000, 0.11, 0.02, np.random.default_rng(1))
    baseline, quantized, drafted, both = table.mean(axis=0)
    assert quantized == pytest.approx(baseline, abs=0.002)
    assert drafted == pytest.approx(baseline, abs=0.002)
    assert both == pytest.approx(baseline - 0.02, abs=0.003)
    assert np.mean(table @ [1, -1, -1, 1] != 0) == pytest.approx(0.11, abs=0.002)


def test_the_interaction_is_found_and_its_absence_is_silent():
    found = rows(quick=True)
    assert [row["id"] for row in found] == ["interaction.power", "interaction.silent"]
    assert all(row["met"] for row in found), found


@pytest.mark.proof
def test_the_error_of_the_choice_at_the_margin_is_at_most_alpha():
    (row,) = choice_of_arms.rows(quick=True)
    assert row["met"], row
    assert max(row["measured"]["each_at_alpha"].values()) > 0.1, "what it would be without"
