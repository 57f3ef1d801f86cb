"""What the engine draws is counted right, and an engine that is wrong is found."""

from __future__ import annotations

import pytest

from qualgate.engine import packed
from tests.engine.engines import PACKED
from tests.verification.lossless.engine_runs import (
    DRAFTED,
    LENGTH,
    SAMPLINGS,
    VOCABULARY,
    Drawn,
    drawn,
    fits,
    logits,
    offered,
    probabilities,
)
from tests.verification.lossless.fits import ALARM
from tests.verification.lossless.wrong_engines import WRONG, wrong

ANSWERS = 1500
LIMIT = ALARM / 32


def test_the_law_is_of_every_beginning_and_cut_as_the_engine_cuts():
    assert len(logits()) == sum(VOCABULARY**length for length in range(LENGTH))
    for name, left in (("temperature 1", VOCABULARY), ("top-k 3 at 0.7", 3)):
        rows = probabilities(SAMPLINGS[name])
        assert all(float(row.sum()) == pytest.approx(1, abs=1e-15) for row in rows.values())
        assert {int((row > 0).sum()) for row in rows.values()} == {left}


def test_drafts_are_partly_right():
    best = {said: int(row.argmax()) for said, row in logits().items()}
    found = [offered((first,), DRAFTED) for first in range(VOCABULARY)]
    right = [draft[0] == best[(first,)] for first, draft in enumerate(found)]
    assert set(right) == {True, False}
    assert all(len(draft) == DRAFTED for draft in found)


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("sampling", SAMPLINGS)
def test_the_engine_draws_from_the_law_of_its_model(kind, sampling):
    found = drawn(kind, sampling, "keyed", ANSWERS, 4)
    assert all(len(said) == LENGTH for said in found.said)
    assert set(found.accepted) == set(range(DRAFTED + 1))
    made = fits(found, kind, sampling, "keyed")
    assert len(made) == 8
    assert all(one.bound > LIMIT for one in made)
    assert all(one.count == ANSWERS for one in made[:6])
    assert made[-1].count == sum(count >= DRAFTED - 1 for count in found.accepted)


@pytest.mark.parametrize("name", WRONG)
def test_an_engine_that_is_wrong_is_found(name):
    before = packed.advance
    sampling = WRONG[name].sampling
    with wrong(name):
        found = drawn("plain", sampling, "keyed", 3 * ANSWERS, 4)
    assert packed.advance is before
    assert min(one.bound for one in fits(found, "plain", sampling, "keyed")) <= LIMIT


def test_answers_that_are_right_with_wrong_counts_of_what_was_accepted_are_found():
    found = drawn("plain", "temperature 1", "keyed", ANSWERS, 4)
    shifted = Drawn(found.said, [min(count + 1, DRAFTED) for count in found.accepted])
    made = {one.of: one.bound for one in fits(shifted, "plain", "temperature 1", "keyed")}
    assert made["tokens 1 to 4"] > LIMIT
    assert made["accepted tokens of a draft"] <= LIMIT
