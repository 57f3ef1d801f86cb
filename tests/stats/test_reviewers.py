"""Krippendorff's alpha against his published example and against the definition, and its bounds."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

from qualgate.stats.reviewers import agreement

# Krippendorff, Computing Krippendorff's Alpha-Reliability, 2011, example C: four observers, twelve units, None missing.
PUBLISHED = (
    (1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None),
    (1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3),
    (None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None),
    (1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None),
)
UNITS = [[value for value in unit if value is not None] for unit in zip(*PUBLISHED, strict=True)]


def by_definition(units: list[list[float]]) -> float:
    """1 − observed over expected disagreement, from all pairs of ratings, as the coincidence matrix has them."""
    paired = [unit for unit in units if len(unit) > 1]
    ratings = [value for unit in paired for value in unit]
    observed = sum((a - b) ** 2 / (len(unit) - 1) for unit in paired for a, b in permutations(unit, 2))
    expected = sum((a - b) ** 2 for a, b in permutations(ratings, 2)) / (len(ratings) - 1)
    return 1 - observed / expected


def test_the_published_example():
    found = agreement(UNITS)
    assert found is not None
    assert round(found.alpha, 3) == 0.849
    assert found.units == 11
    assert found.lower < 0.849 < found.upper <= 1


@pytest.mark.parametrize("seed", range(20))
def test_alpha_is_that_of_the_definition(seed):
    rng = np.random.default_rng(seed)
    units = [list(rng.choice([0.0, 0.5, 1.0], rng.integers(0, 5))) for _ in range(30)]
    found = agreement(units)
    assert found is not None
    assert found.alpha == pytest.approx(by_definition(units), abs=1e-12)


@pytest.mark.parametrize(
    ("units", "alpha"),
    [
        ([[1, 1], [0, 0], [1, 1]], 1.0),
        ([], None),
        ([[1], [0]], None),
        ([[1, 1], [1, 1]], None),
    ],
)
def test_at_the_edges(units, alpha):
    found = agreement(units)
    assert (found and (found.alpha, found.lower, found.upper)) == (None if alpha is None else (alpha,) * 3)


def test_the_bounds_hold_the_truth_about_as_often_as_they_say():
    """Two raters who agree by a common coin with chance c, else toss each their own: alpha is c."""
    rng, truth, missed = np.random.default_rng(1), 0.5, 0
    for _ in range(200):
        common, own = rng.integers(0, 2, 80), rng.integers(0, 2, (2, 80))
        rated = np.where(rng.random(80) < truth, common, own)
        found = agreement(rated.T.tolist())
        assert found is not None
        missed += not found.lower <= truth <= found.upper
    assert missed <= 22  # 5 % and three standard errors
