"""What the engine draws is counted right, and an engine that is wrong is found."""

from __future__ import annotations

import pytest

from tests.verification.lossless.engine_law import (
    DRAFTED,
    LENGTH,
)
from tests.verification.lossless.engine_runs import drawn, fits, keys_reused
from tests.verification.lossless.fits import ALARM
from tests.verification.lossless.ways import WAYS, Way
from tests.verification.lossless.wrong_engines import WRONG

ANSWERS = 400
LIMIT = ALARM / 184
OF_EACH = {way.drafts: way for way in WAYS}  # benchmark `lossless` draws in all ways and from all wrong engines
PLANTED = ("the first token of a draft is believed", "levels and rounds share their numbers")


@pytest.mark.parametrize("way", OF_EACH.values(), ids=OF_EACH)
def test_the_engine_draws_from_the_law_of_its_model(way: Way):
    with keys_reused() as reused:
        found = drawn(way, ANSWERS, 4)
    assert not reused
    assert all(len(said) == LENGTH for said in found.said)
    assert set(found.accepted) == set(range(DRAFTED + 1))
    made = fits(found, way)
    assert len(made) == (4 if way.rule == "keyed" and way.drafts != "texts" else 8)
    assert all(one.bound > LIMIT for one in made)
    assert all(one.count == ANSWERS for one in made[:6])
    if len(made) == 8:
        assert made[-1].count == sum(count >= DRAFTED - 1 for count in found.accepted)


@pytest.mark.parametrize("name", PLANTED)
def test_an_engine_that_is_wrong_is_found(name: str):
    with WRONG[name].planted():
        found = drawn(WRONG[name].way, WRONG[name].way.answers, 4)
    assert min(one.bound for one in fits(found, WRONG[name].way)) <= LIMIT
