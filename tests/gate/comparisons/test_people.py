"""Rules on what people prefer: undecided with what they need, and false approvals within alpha at whatever moment."""

from __future__ import annotations

import numpy as np
import pytest

from qualgate.gate.decide import decide
from qualgate.records import Judged, JudgedArm, Policy, Rule, Vote
from qualgate.records.judged import UNCOMPARED
from qualgate.stats.paired.compare import compare_pairs
from tests.gate.planted import run, with_variant

ALPHA, DROP = 0.05, 0.1
POLICY = Policy(
    rules=(
        Rule(metric="exact_match", max_drop=0.1),
        Rule(metric="people.win", evalset="code", max_drop=DROP),
    ),
    alpha=ALPHA,
)
WON, LOST, TIED, OPEN = 1.0, 0.0, 0.5, None


def evidence(*wins: float | None, equal: int = 0):
    """Evidence of pairs that one person compared, or not yet, and of equal ones."""
    places = [("code", f"code-{at}", 0) for at in range(len(wins) + equal)]
    judged = {
        place: Judged(win=win) if win is not None else Judged(win=None, why=UNCOMPARED)
        for place, win in zip(places, [*wins, *[0.5] * equal], strict=True)
    }
    votes = {
        place: () if win is None else (Vote("Ada", win, "tie"),)
        for place, win in zip(places, wins, strict=False)
    }  # fmt: skip
    arm = JudgedArm(judge="people", floor=None, pairs=judged, votes=votes)
    return with_variant(run(n=len(places)), preferred=arm)


def of_people(found):
    (verdict,) = decide(found, POLICY).verdicts
    return verdict, next(one for one in verdict.comparisons if one.metric == "people.win")


def test_the_test_is_the_paired_one_and_people_need_no_floor():
    verdict, found = of_people(evidence(*[WON] * 20, *[LOST] * 24, *[TIED] * 100, equal=56))
    expected = compare_pairs(24, 20, 200, 2 * DROP, ALPHA)
    assert (found.lost, found.gained, found.n, found.status) == (24, 20, 200, "proven")
    assert (found.lower, found.upper) == (expected.lower / 2, expected.upper / 2)
    assert verdict.word == "approve"
    assert any(line.startswith("people: 144 preferences of 1 reviewer (") for line in verdict.reasons)


@pytest.mark.parametrize(
    ("found", "word", "status", "said"),
    [
        (run(n=100), "undecided", "undecided", "nobody has compared these answers"),
        (evidence(*[OPEN] * 60, equal=40), "undecided", "undecided", "people have yet to compare 60 of 100 pairs"),
        (evidence(*[OPEN] * 60, equal=40), "undecided", "undecided", "there are 100, of which 60 differ"),
        (evidence(*[OPEN] * 40), "undecided", "undecided", "That takes about 155 pairs"),
        (evidence(*[OPEN] * 300), "undecided", "undecided", "These suffice"),
        (evidence(*[WON] * 60, *[OPEN] * 140), "undecided", "undecided", "yet to compare 140 of 200 pairs"),
        (evidence(*[OPEN] * 3, equal=197), "approve", "proven", ""),
        (evidence(*[LOST] * 120, *[TIED] * 50, *[OPEN] * 30), "block", "broken", "people.win [code] fell"),
    ],
)
def test_until_people_have_answered_the_rule_says_what_it_needs(found, word, status, said):
    verdict, compared = of_people(found)
    assert (verdict.word, compared.status, said in compared.reason) == (word, status, True), compared.reason


def test_before_it_is_settled_no_number_of_the_rule_is_shown():
    _, found = of_people(evidence(*[WON] * 60, *[OPEN] * 140))
    assert (found.lost, found.gained, found.difference) == (None, None, None)


CASES, LOOKS = 60, (20, 40, 50, 60)


def wrongly_decided(draws: int, rng: np.random.Generator) -> tuple[int, int]:
    """Draws in which some moment proves the rule, or its breach, for a variant that loses just as much as is allowed.

    Half of the cases are lost and 0.3 won. The gate is asked at each look, and whoever asks stops at the word that they
    like. In a third of the draws each, the cases won come first, the cases lost, or any.
    """
    proven = broken = 0
    for draw in range(draws):
        wins = rng.choice([LOST, WON, TIED], CASES, p=[0.3 + 2 * DROP, 0.3, 0.7 - 2 * DROP - 0.3])
        order = np.argsort((-wins, wins, rng.random(CASES))[draw % 3], kind="stable")
        words = set()
        for seen in LOOKS:
            given: list[float | None] = [OPEN] * CASES
            for case in order[:seen]:
                given[case] = float(wins[case])
            words.add(of_people(evidence(*given))[1].status)
        proven, broken = proven + ("proven" in words), broken + ("broken" in words)
    return proven, broken


@pytest.mark.parametrize("draws", [40, pytest.param(4000, marks=pytest.mark.proof)])
def test_at_the_limit_no_moment_and_no_order_proves_or_breaks_it_more_often_than_alpha(draws):
    proven, broken = wrongly_decided(draws, np.random.default_rng(7))
    most = ALPHA * draws + 3 * (ALPHA * (1 - ALPHA) * draws) ** 0.5
    assert proven <= most, (proven, draws)
    assert broken <= most, (broken, draws)
