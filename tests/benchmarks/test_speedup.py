"""The law of speculation against a simulation of it, and against what it says of answers without end."""

from __future__ import annotations

import random
from statistics import mean

import pytest

from qualgate.engine.speculation.steps import Step
from tests.benchmarks.speedup import (
    Accepted,
    PassTimes,
    accepted,
    accepted_of_each,
    course_of,
    predicted,
    tokens_a_pass,
)

FREE = PassTimes(target={(1, 0): 1.0, (1, 8): 1.0, (4, 0): 1.0, (4, 8): 1.0}, draft={})


def step(position, proposed, agreed):
    rejected = int(agreed < proposed)
    return Step(
        row=0, position=position, proposed=proposed, accepted=agreed, rejected=rejected, unverified=0, proposer="x"
    )


def simulated(length, tokens, fate, draw):
    """Passes until so many tokens are said, one draft after the other, and tokens of all drafts, which end where the
    answer does."""
    passes = said = drafted = 0
    while said < length:
        drafted += min(tokens, length - said)
        passes, said = passes + 1, said + 1
        if draw.random() >= fate.drafted:
            continue
        for place in range(tokens):
            if draw.random() >= fate.chances[min(place, len(fate.chances) - 1)]:
                break
            said += 1
    return passes, drafted


def test_chances_are_of_those_that_were_reached():
    found = accepted([step(0, 0, 0), step(1, 3, 3), step(5, 3, 1), step(7, 2, 2), step(10, 0, 0)])
    assert found.drafted == 3 / 4  # the pass that read the prompt apart
    assert list(found.chances) == [3 / 3, 2 / 3, 1 / 1]
    assert accepted([step(0, 0, 0)]) == Accepted(drafted=0.0, chances=[])


@pytest.mark.parametrize(
    ("length", "tokens", "fate"),
    [
        (25, 4, Accepted(drafted=1.0, chances=[0.9, 0.8, 0.7])),
        (7, 8, Accepted(drafted=1.0, chances=[0.95])),
        (40, 3, Accepted(drafted=0.4, chances=[0.6, 0.9])),
    ],
)
def test_passes_are_as_many_as_a_simulation_takes(length, tokens, fate):
    draw = random.Random(0)
    passes, drafted = map(mean, zip(*(simulated(length, tokens, fate, draw) for _ in range(20_000)), strict=True))
    assert course_of(length, tokens, fate) == pytest.approx((passes, drafted / passes), rel=0.01)


def test_passes_of_what_needs_none_and_of_what_is_always_accepted():
    sure = Accepted(drafted=1.0, chances=[1.0])
    assert course_of(0, 4, sure) == (0, 0)
    assert [course_of(length, 4, sure) for length in (1, 5, 6, 10, 11)] == [(1, 1), (1, 4), (2, 2.5), (2, 4), (3, 3)]
    assert course_of(9, 4, Accepted(drafted=1.0, chances=[]))[0] == 9  # nothing was ever accepted


def test_answers_without_end_gain_what_leviathan_s_theorem_says():
    chance, tokens = 0.8, 5
    fate = Accepted(drafted=1.0, chances=[chance])
    times = PassTimes(target={(1, 0): 2.0, (1, 5): 3.0}, draft={1: (0.0, 0.5)})
    told = (1 - chance ** (tokens + 1)) / (1 - chance)
    assert tokens_a_pass(tokens, fate) == pytest.approx(told)
    assert predicted([20_000], tokens, fate, times) == pytest.approx(told / (3 / 2 + tokens * 0.5 / 2), rel=1e-3)


def test_between_what_was_measured_times_are_on_a_line_and_beyond_it_the_last():
    times = PassTimes(target={(1, 0): 1.0, (1, 4): 2.0, (4, 0): 4.0, (4, 4): 8.0}, draft={1: (1.0, 2.0), 4: (2.0, 4.0)})
    assert times.seconds(1, 1) == 1.25
    assert times.seconds(2, 0) == 2.0
    assert times.seconds(3, 2) == pytest.approx(1.5 + (6 - 1.5) * 2 / 3)
    assert times.seconds(9, 9) == 8.0
    assert times.drafting(1, 3) == 7.0
    assert times.drafting(2, 3) == pytest.approx(4 / 3 + 3 * 8 / 3)
    assert times.drafting(2, 0) == FREE.drafting(1, 3) == 0.0


def test_an_answer_that_is_drafted_for_worse_than_others_ends_last_and_is_told_apart():
    good = [Step(0, at, 2, 2, 0, 0, "x") for at in range(1, 41)]
    bad = [Step(1, at, 2, 0, 1, 0, "x") for at in range(1, 41)]
    each, alike = accepted_of_each([*good, *bad], 3), accepted([*good, *bad])
    assert alike.chances[0] == 0.5
    assert each[0].chances[0] > 0.95 > 0.05 > each[1].chances[0]
    assert each[2] == Accepted(drafted=1.0, chances=alike.chances), "nothing was seen of it"
    times = PassTimes(target={(1, 0): 1.0, (2, 0): 1.0, (1, 2): 1.0, (2, 2): 1.0}, draft={})
    apart = predicted([31, 31], 2, each[:2], times)
    assert 1 < apart < 1.1 < predicted([31, 31], 2, alike, times)
