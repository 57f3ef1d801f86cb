"""How long answers still are, against lengths that were planted."""

from __future__ import annotations

import random

import pytest

from qualgate.engine.speculation.remaining import PRIOR, Remaining


def told(lengths: list[int]) -> Remaining:
    found = Remaining()
    for length in lengths:
        for at in range(length):
            found.observe("task", at, 1)
        found.ended("task", length)
    return found


@pytest.mark.parametrize("said", [0, 40, 80])
def test_it_is_the_mean_of_what_answers_had_still(said):
    draw = random.Random(1)
    lengths = [draw.randint(20, 120) for _ in range(200)]
    longer = [length - said for length in lengths if length > said]
    assert told(lengths).tokens("task", said, 10_000) == pytest.approx(sum(longer) / len(longer), rel=0.35, abs=3)


def test_an_answer_has_no_more_than_it_has_room_for():
    assert told([200] * 20).tokens("task", 0, 7) == 7


def test_of_a_task_that_nobody_saw_something_is_believed():
    assert Remaining().tokens("task", 3, 1000) == PRIOR
    assert told([5] * 9).tokens("other", 3, 1000) == PRIOR


def test_answers_that_go_on_are_not_taken_for_short_ones():
    found = told([8] * 5)
    before = found.tokens("task", 0, 1000)
    for at in range(100):
        for _ in range(20):
            found.observe("task", at, 1)
    found.ended("task", 8)
    assert found.tokens("task", 0, 1000) > 3 * before
