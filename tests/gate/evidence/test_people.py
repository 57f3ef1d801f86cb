"""What people preferred: the case is the observation, and a taste for a place is named."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import beta, binomtest

from qualgate.gate.evidence.people import majority, people_notes, summary
from qualgate.records import JudgedArm, Vote


def votes(*wins: float, place: str = "tie") -> tuple[Vote, ...]:
    return tuple(Vote(f"r{at}", win, place) for at, win in enumerate(wins))  # type: ignore[arg-type]


def pairs(*each: tuple[Vote, ...]) -> dict:
    return {("chat", f"c{at}", 0): some for at, some in enumerate(each)}


@pytest.mark.parametrize(
    ("wins", "most"), [((), 0.5), ((1, 1, 0), 1.0), ((1, 0), 0.5), ((1, 0.5), 1.0), ((0.5, 0.5, 0), 0.0)]
)
def test_most_votes_decide_a_case(wins, most):
    assert majority(votes(*wins)) == most


def test_the_numbers_are_those_of_scipy():
    found = summary(pairs(*[votes(1)] * 30, *[votes(0)] * 15, *[votes(0.5)] * 20))
    assert (found.wins, found.losses, found.ties, found.preferences) == (30, 15, 20, 65)
    assert found.rate is not None
    assert found.rate.p == pytest.approx(binomtest(30, 45).pvalue)
    assert found.rate.share == 40 / 65
    assert found.rate.lower == pytest.approx(beta.ppf(0.025, 40, 26))
    assert found.rate.upper == pytest.approx(beta.ppf(0.975, 41, 25))


def test_more_reviewers_or_repeats_of_the_same_cases_narrow_nothing():
    one = summary(pairs(*[votes(1)] * 12, *[votes(0)] * 8))
    many = summary(pairs(*[votes(*[1] * 9)] * 12, *[votes(*[0] * 9)] * 8))
    repeated = summary(
        {("chat", f"c{case}", repeat): votes(float(case < 12)) for case in range(20) for repeat in (0, 1)}
    )
    assert one.rate == many.rate == repeated.rate
    assert many.preferences == 180
    assert many.agreement is not None
    assert many.agreement.alpha == 1.0


def test_nobody_gives_no_number():
    found = summary({("chat", "c", 0): ()})
    assert (found.wins, found.rate, found.first, found.agreement, found.leans) == (0, None, None, None, "")
    assert people_notes(JudgedArm(judge="people", floor=None, votes={("chat", "c", 0): ()})) == ()
    assert people_notes(None) == ()


@pytest.mark.parametrize(("first", "second", "leans"), [(40, 20, "first"), (20, 40, "second"), (34, 26, "")])
def test_a_taste_for_a_place_is_named_where_the_interval_leaves_a_half(first, second, leans):
    each = [votes(1, place="first")] * first + [votes(0, place="second")] * second
    arm = JudgedArm(judge="people", floor=None, votes=pairs(*each))
    assert summary(arm.votes).leans == leans
    named = [line for line in people_notes(arm) if "they prefer the answer shown" in line]
    assert len(named) == bool(leans)


def test_dependent_preferences_do_not_make_a_fair_reviewer_look_biased():
    """Every reviewer prefers the same arm of a case; sides are drawn for each. Named in at most 5 %."""
    rng, named = np.random.default_rng(0), 0
    for _ in range(300):
        arms = rng.integers(0, 2, 30)
        each = []
        for win in arms:
            sides = rng.integers(0, 2, 4)
            each.append(tuple(Vote(f"r{at}", float(win), "first" if side == win else "second")
                              for at, side in enumerate(sides)))  # fmt: skip
        named += bool(summary(pairs(*each)).leans)
    assert named <= 26  # 5 % and three standard errors


def test_the_note_tells_which_preferences_were_read():
    arm = JudgedArm(judge="people", floor=None, votes=pairs(votes(1, 0), votes(0, 0)), read="a" * 64)
    (note,) = people_notes(arm)
    assert note.startswith("people: 4 preferences of 2 reviewers (")
    assert "Krippendorff's alpha" in note
    assert f"({'a' * 16})" in note
