"""A slice of the row `judge`: what is planted is named, useless judges decide nothing, and the floor is enforced."""

from __future__ import annotations

import pytest

from tests.verification.references.judges import (
    ALPHA,
    BIASED,
    FAIR,
    STYLES,
    USELESS,
    at_the_floor,
    errors,
    no_more_than,
    rates,
)


@pytest.mark.parametrize("name", BIASED)
def test_a_planted_taste_is_named(name):
    assert rates(BIASED[name], 1, f"slice {name}").named.keys() == {name.partition(",")[0]}


@pytest.mark.parametrize("name", USELESS)
def test_nothing_rests_on_a_judge_that_knows_nothing(name):
    found = rates(USELESS[name], 1, f"slice {name}")
    assert (found.believed, found.approved, found.blocked) == (0, 0, 0)


def test_a_fair_judge_is_believed_and_named_for_nothing():
    found = rates(FAIR, 2, "slice")
    assert (found.believed, found.blocked, found.named) == (2, 0, {})
    assert found.approved


def test_a_worse_arm_is_not_approved_for_its_length_nor_an_equal_one_blocked_for_it():
    longer, shorter = ([style for style in STYLES if style[0] == sign] * 5 + list(STYLES) for sign in (1, -1))
    verbose = rates(BIASED["length"], 1, "slice", lead=-0.25, spread=0.4, styles=longer)
    assert (verbose.approved, verbose.plainly_approved) == (0, 1)
    terse = rates(BIASED["length"], 1, "slice", spread=0.4, styles=shorter)
    assert (terse.blocked, terse.plainly_blocked) == (0, 1)


def test_a_judge_that_agrees_just_as_its_floor_asks_is_rarely_believed():
    assert 0.01 < at_the_floor(30) <= ALPHA


def test_at_the_margin_a_taste_neither_approves_nor_blocks():
    approved, blocked, draws = errors(15)
    assert no_more_than(approved, draws)
    assert no_more_than(blocked, draws)
