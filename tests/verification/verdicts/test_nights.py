"""A slice of the simulated years, and that a wrong detector would be found out."""

from __future__ import annotations

import numpy as np

from tests.verification.verdicts import nights


def test_a_slice_of_the_years_holds_the_goal_and_the_oracle_agrees(monkeypatch):
    monkeypatch.setattr(nights, "FALLS", dict(list(nights.FALLS.items())[:2]))
    monkeypatch.setattr(nights, "QUIET", {"400 cases, 20 % waver": nights.QUIET["400 cases, 20 % waver"]})
    [row] = nights.measured_rows(quick=True)
    assert row.met is True
    assert row.measured["oracle_differs"] < 1e-9


def test_held_against_the_approved_run_alone_a_lucky_one_would_be_a_fall_every_year():
    """What the exchangeable nights are for: a plain paired test a night, repeated, tells a fall where there is none."""
    world = nights.QUIET["400 cases, 10 % waver, approved the best of 10"]
    told = 0
    for year in range(6):
        x = world.year(np.random.default_rng(year))
        lost = (x[0] - x[1:]).mean(axis=1)  # every night against the approved one
        error = (x[0] - x[1:]).std(axis=1) / np.sqrt(world.cases)
        told += bool(
            (lost.cumsum() / np.arange(1, len(lost) + 1) > 4 * error / np.sqrt(np.arange(1, len(lost) + 1)))[30:].any()
        )
        assert not nights._told(x).falls
    assert told >= 4
