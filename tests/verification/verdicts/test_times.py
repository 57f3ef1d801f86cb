"""Slow machines are not slow arms: a slice of the rows `times.errors` and `times.power`."""

from __future__ import annotations

import numpy as np
import pytest

from tests.verification.verdicts.times import LIMIT, Cell, machine, measured_rows


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


@pytest.mark.parametrize("rho", [0.0, 0.95])
def test_an_equal_variant_is_approved_by_sixty_batches(rho):
    generator = np.random.default_rng(4)
    cell = Cell(speed="log", rho=rho, turns=60, truth=1.0)
    assert np.mean([cell.decided(generator)[0] for _ in range(150)]) >= 0.9


def test_a_variant_twice_the_allowance_slower_is_blocked():
    generator = np.random.default_rng(5)
    cell = Cell(speed="log", rho=0.8, turns=60, truth=1 + 2 * (LIMIT - 1))
    assert np.mean([cell.decided(generator)[1] for _ in range(100)]) >= 0.9


@pytest.mark.proof
def test_every_cell_of_both_rows():
    errors, power = measured_rows(quick=False)
    assert errors["met"], errors["rows"]
    assert power["met"], power["rows"]
