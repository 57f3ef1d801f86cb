"""A slice of the row `judge`: what is planted is named, useless judges decide nothing, and the floor is enforced."""

from __future__ import annotations

import pytest

from tests.depth import with_proofs
from tests.verification.references.judges import ALPHA, BIASED, FAIR, STYLES, USELESS, at_the_floor, rates


@pytest.mark.parametrize("name", with_proofs(BIASED, {*BIASED} - {"position, last", "length", "format, less"}))
def test_a_planted_taste_is_named(name):
    assert rates(BIASED[name], 1, f"slice {name}").named.keys() == {name.partition(",")[0]}


@pytest.mark.parametrize("name", with_proofs(USELESS, {*USELESS} - {"guesses", "half out of its form"}))
def test_nothing_rests_on_a_judge_that_knows_nothing(name):
    found = rates(USELESS[name], 1, f"slice {name}")
    assert (found.believed, found.approved, found.blocked) == (0, 0, 0)


def test_a_fair_judge_is_believed_and_named_for_nothing():
    found = rates(FAIR, 1, "slice")
    assert (found.believed, found.blocked, found.named) == (1, 0, {})
    assert found.approved


@pytest.mark.parametrize(("sign", "lead", "judged", "plainly"), [(1, -0.25, "approved", 1), (-1, 0.0, "blocked", 1)])
def test_a_worse_arm_is_not_approved_for_its_length_nor_an_equal_one_blocked_for_it(sign, lead, judged, plainly):
    styles = [style for style in STYLES if style[0] == sign] * 5 + list(STYLES)
    found = rates(BIASED["length"], 1, "slice", lead=lead, spread=0.4, styles=styles)
    assert (getattr(found, judged), getattr(found, f"plainly_{judged}")) == (0, plainly)


def test_a_judge_that_agrees_just_as_its_floor_asks_is_rarely_believed():
    assert 0.01 < at_the_floor(30) <= ALPHA
