"""Rules on what a judge prefers: paired tests of won against lost pairs, undecided below the judge's floor."""

from __future__ import annotations

from dataclasses import replace

import pytest
from scipy.stats import beta

from qualgate.errors import UsageError
from qualgate.gate.evidence.judged import agreement, biases, judge_notes
from qualgate.gate.rules import check_policy
from qualgate.gate.verdict import decide_plain
from qualgate.records import Judged, JudgedArm, JudgedLabel, Policy, Rule
from qualgate.stats.paired.compare import compare_pairs
from tests.gate.planted import run, with_variant

POLICY = Policy(
    rules=(Rule(metric="exact_match", max_drop=0.1), Rule(metric="judge.win", evalset="code", max_drop=0.05))
)
WON, LOST, TIED = (Judged(win=win, places=places) for win, places in (
    (1.0, ("B", "A")), (0.0, ("A", "B")), (0.5, ("tie", "tie"))))  # fmt: skip
TORN = Judged(win=0.5, places=("A", "A"))
NULL = Judged(win=None, why="outside its form in the first order: no JSON object")


def sample(right: int, wrong: int = 0, tied: int = 0, torn: int = 0) -> tuple[JudgedLabel, ...]:
    each = [WON] * right + [LOST] * wrong + [TIED] * tied + [TORN] * torn
    return tuple(JudgedLabel(preferred=1.0, question=f"q{at}", judged=one) for at, one in enumerate(each))


LABELS = sample(40)


def judged(*pairs: Judged, labels: tuple[JudgedLabel, ...] = LABELS, floor: float = 0.7, fault: str = ""):
    """Evidence of as many cases of the set `code`, with these judgements."""
    found = {("code", f"code-{at}", 0): one for at, one in enumerate(pairs)}
    arm = JudgedArm(judge="judge/1 f (m)", floor=floor, pairs=found, labels=labels, fault=fault)
    return with_variant(run(n=len(pairs)), judged=arm)


def of_judge(evidence, policy=POLICY):
    (verdict,) = decide_plain(evidence, policy)
    return verdict, next(one for one in verdict.comparisons if one.metric == "judge.win")


def test_the_test_is_the_paired_one_of_won_against_lost_pairs_and_a_tie_counts_half():
    verdict, found = of_judge(judged(*[WON] * 3, *[LOST] * 12, *[TIED] * 185))
    expected = compare_pairs(12, 3, 200, 0.10, 0.05)
    assert (found.baseline, found.variant) == (0.5, pytest.approx(0.5 - 9 / 400))
    assert (found.lower, found.upper) == (expected.lower / 2, expected.upper / 2)
    assert (found.lost, found.gained, found.n, found.status) == (12, 3, 200, "proven")
    assert verdict.word == "approve"
    assert "judge.win [code] fell 2.2 points" in found.reason


@pytest.mark.parametrize(
    ("evidence", "said"),
    [
        (run(n=100), "no judge compared these answers"),
        (judged(*[TIED] * 100, labels=sample(20, 20)), "agrees with 20 of 40 decided labels"),
        (judged(*[LOST] * 100, labels=sample(20, 20)), "it decides nothing"),
        (judged(*[TIED] * 100, labels=sample(0, tied=40)), "agrees with 0 of 40 decided labels"),
        (judged(*[TIED] * 100, labels=()), "no label prefers an answer"),
        (judged(*[TIED] * 100, fault="its labelled sample was not judged whole"), "not judged whole"),
        (
            judged(*[NULL] * 100),
            "the judge could not say for 100 of 100 pairs (outside its form in the first order 100",
        ),
    ],
)
def test_without_a_judge_that_was_measured_the_rule_is_undecided_either_way(evidence, said):
    verdict, found = of_judge(evidence)
    assert (verdict.word, found.status) == ("undecided", "undecided")
    assert said in found.reason


UNJUDGED = judged(*[TIED] * 100)
FEWER = {key: one for key, one in UNJUDGED.variants[0].judged.pairs.items() if key[1] != "code-7"}


@pytest.mark.parametrize(
    ("evidence", "status", "said"),
    [
        (judged(*[LOST] * 60, *[TIED] * 140), "broken", "judge.win [code] fell"),
        (with_variant(UNJUDGED, judged=replace(UNJUDGED.variants[0].judged, pairs=FEWER)), "undecided",
         "1 of 100 pairs were not judged by it: qualgate rescore"),
        (judged(*[TIED] * 198, *[NULL] * 2), "proven", ""),
        (judged(*[TIED] * 160, *[NULL] * 40), "undecided", "could not say for 40 of 200 pairs"),
        (judged(*[LOST] * 60, *[NULL] * 30, *[TIED] * 110), "undecided", ""),
    ],
)  # fmt: skip
def test_a_pair_without_a_verdict_is_lost_to_an_approval_and_won_to_a_block(evidence, status, said):
    verdict, found = of_judge(evidence)
    assert (found.status, said in found.reason) == (status, True), found.reason
    assert verdict.word == {"broken": "block", "proven": "approve"}.get(status, "undecided")


def styled(one: Judged, longer: int) -> Judged:
    return replace(one, style=(longer, 0))


def test_what_only_holds_where_the_judge_likes_the_style_is_neither_approved_nor_blocked():
    liked = [styled(WON, 1)] * 100 + [styled(LOST, -1)] * 10 + [LOST] * 30 + [TIED] * 60
    _, found = of_judge(judged(*liked))
    assert found.variant > 0.6
    assert found.status == "undecided"
    disliked = [styled(LOST, -1)] * 100 + [styled(WON, 1)] * 10 + [TIED] * 90
    _, found = of_judge(judged(*disliked))
    assert found.variant < 0.3
    assert found.status == "undecided"


def test_no_pair_of_alike_style_proves_nothing():
    _, found = of_judge(judged(*[styled(WON, 1)] * 200))
    assert found.status == "undecided"
    assert "no pair is of alike style" in found.reason


def test_agreement_is_bounded_as_clopper_and_pearson_do():
    found = agreement(JudgedArm(judge="j", floor=0.7, labels=sample(45, 5)), 0.05)
    assert found.lower == pytest.approx(beta.ppf(0.05, 45, 6))


def test_labels_of_one_question_count_as_one():
    labels = tuple(replace(one, question=f"q{at % 5}") for at, one in enumerate(sample(40)))
    _, found = of_judge(judged(*[TIED] * 200, labels=labels))
    assert "not surely over its floor" in found.reason
    assert agreement(JudgedArm(judge="j", floor=0.7, labels=labels), 0.05).clusters == 5


def test_where_its_orders_contradict_each_other_the_place_that_it_likes_is_named():
    arm = judged(*[TORN] * 20, *[TIED] * 180).variants[0].judged
    assert [bias.name for bias in biases(arm)] == ["position"]
    lines = judge_notes(arm, 0.05)
    assert "its two orders contradict each other in 20 of 240 pairs: ties" in lines[1]
    assert "position bias: it contradicts itself toward the answer shown first in 20 of 20 questions" in lines[2]


def test_answers_that_speak_to_the_judge_are_counted():
    arm = judged(replace(TIED, steers=("a verdict",)), *[TIED] * 30).variants[0].judged
    assert "1 pair holds a verdict in an answer: read them" in judge_notes(arm, 0.05)[-1]


def test_a_judge_is_never_the_only_critical_rule():
    alone = Policy(rules=(Rule(metric="judge.win", max_drop=0.05),))
    with pytest.raises(UsageError, match="no critical quality rule"):
        check_policy(alone, {"code": ("exact_match",)})
