"""An arm is called speculation only where drafting was seen, or declared by whoever served it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.errors import Exit
from qualgate.gate.decide import exit_of
from qualgate.gate.four_arm.verdict import decide_four
from qualgate.records import Drafted, FourArm, FourArms, RunEvidence, Verdict
from qualgate.report.formats import FORMATS, rendered
from qualgate.report.unstored import report_of
from qualgate.store import plain
from tests.gate.four import ARMS, POLICY, alike, evidence, with_units
from tests.gate.four_arm.test_verdict import CHEAPER, worse
from tests.report.test_formats import Page

BOTH_WAYS = ("`draft_proposed`", "four_arm: {drafting: {drafted: {proposed: N, accepted: M}}}")


def drafting(
    given: RunEvidence, arm: str, proposed: int | None, accepted: int | None, answers: int = 200
) -> RunEvidence:
    """The first answers of the arm say this of their drafts, the others nothing."""

    def change(unit):
        first = int(unit.key.case_id[2:]) < answers
        return replace(unit, draft_proposed=proposed if first else None, draft_accepted=accepted if first else None)

    return with_units(given, arm, change)


def silent(n: int = 200) -> RunEvidence:
    """The four-arm example of old: `drafted` is a second copy of the baseline, `int4+drafted` one of `int4`."""
    given = evidence(alike(n), CHEAPER)
    for arm in ("drafted", "int4+drafted"):
        given = drafting(given, arm, None, None)
    return given


def judged(given: RunEvidence, *declared: tuple[str, int, int], arms: FourArms = ARMS) -> tuple[Verdict, ...]:
    told = tuple(Drafted(arm=arm, proposed=proposed, accepted=accepted) for arm, proposed, accepted in declared)
    return decide_four(given, replace(POLICY, four_arm=replace(arms, drafting=told)))


def answer(verdicts: tuple[Verdict, ...]) -> FourArm:
    assert verdicts[-1].four_arm is not None
    return verdicts[-1].four_arm


def drafted(verdicts: tuple[Verdict, ...], arm: str = "drafted") -> tuple[str, str]:
    found = next(one for one in answer(verdicts).steps if (one.arm, one.step) == (arm, "drafting"))
    return found.status, found.reason


@pytest.mark.parametrize("parity", ["identical", "sampled", "lossy"])
@pytest.mark.parametrize("counts", [(None, None), (0, 0), (0, None)])
def test_a_second_copy_of_its_target_is_never_proven_and_nothing_is_chosen(parity, counts):
    given = drafting(silent(), "drafted", *counts)
    verdicts = judged(given, arms=replace(ARMS, parity=parity))
    status, why = drafted(verdicts)
    assert (status, answer(verdicts).choice, exit_of(verdicts)) == ("undecided", "", Exit.UNDECIDED)
    assert {one.word for one in verdicts[1:]} == {"undecided"}
    assert all(way in why for way in BOTH_WAYS)
    assert answer(verdicts).why == f"drafted: {why}"
    assert verdicts[1].reasons[0] == f"drafting undecided: {why}"


def test_what_is_proven_broken_blocks_an_arm_whether_or_not_it_drafted():
    given = evidence(alike(300) | {"int4+drafted": worse(300, 60)}, CHEAPER)
    given = drafting(given, "int4+drafted", None, None)
    assert judged(given)[-1].word == "block"


@pytest.mark.parametrize(
    ("accepted", "answers", "told"),
    [
        (21, 150, "drafted 4,500 tokens, 3,150 accepted (70.0%), as 150 of 200 answers say"),
        (None, 200, "drafted 6,000 tokens, as 200 of 200 answers say"),
        (0, 200, "drafted 6,000 tokens, 0 accepted (0.0%), as 200 of 200 answers say"),
    ],
)
def test_what_was_drafted_is_told_with_the_answers_that_say_it(accepted, answers, told):
    given = drafting(evidence(alike(200), CHEAPER), "drafted", 30, accepted, answers=answers)
    assert drafted(judged(given)) == ("proven", told)


@pytest.mark.parametrize("form", FORMATS)
def test_declared_totals_do_and_every_format_says_declared(form):
    verdicts = judged(silent(), ("drafted", 12000, 8100), ("int4+drafted", 12500, 8000))
    assert drafted(verdicts) == (
        "proven", "declared in the gate file, not measured: drafted 12,000 tokens, 8,100 accepted (67.5%)",
    )  # fmt: skip
    assert (answer(verdicts).choice, exit_of(verdicts)) == ("int4+drafted", Exit.APPROVE)
    policy = replace(POLICY, four_arm=replace(ARMS, drafting=(Drafted(arm="drafted", proposed=12000, accepted=8100),)))
    text = rendered(report_of(silent(), verdicts, policy, list("bqsx")), form)
    shown = "".join(Page(text).text) if form == "html" else text
    assert "what it drafted is declared in the gate file" in shown
    if form not in ("sarif", "gitlab", "annotations"):  # these tell the choice alone, and none of the arms' steps
        for tokens in ("12,000", "12,500"):
            assert f"declared in the gate file, not measured: drafted {tokens}" in shown


@pytest.mark.parametrize(
    ("counts", "declared", "why"),
    [
        ((0, 0), (12000, 8100), "one of the two is wrong"),
        ((40, 15), (7999, 3000), "one of the two is wrong"),
        ((None, None), (0, 0), "which no draft can be"),
        ((None, None), (5, 6), "which no draft can be"),
        ((None, None), (-5, -6), "which no draft can be"),
        ((3, 4), None, "200 answers kept more of a draft"),
        ((-3, -3), (5, 4), "200 answers kept more of a draft"),
        ((None, 4), None, "200 answers kept more of a draft"),
    ],
)
def test_counts_that_contradict_themselves_or_each_other_prove_nothing(counts, declared, why):
    given = drafting(evidence(alike(200), CHEAPER), "drafted", *counts)
    verdicts = judged(given, *([("drafted", *declared)] if declared else []))
    status, reason = drafted(verdicts)
    assert (status, why in reason, exit_of(verdicts)) == ("undecided", True, Exit.UNDECIDED), reason


def test_totals_of_a_server_that_served_more_than_these_answers_agree_with_them():
    verdicts = judged(evidence(alike(200), CHEAPER), ("drafted", 20000, 9000))
    assert drafted(verdicts)[1] == "drafted 8,000 tokens, 3,000 accepted (37.5%), as 200 of 200 answers say"


@pytest.mark.parametrize(("arm", "told_of"), [("baseline", "drafted"), ("int4", "int4")])
def test_an_arm_that_is_to_draft_nothing_and_did_makes_the_four_no_four_arms(arm, told_of):
    verdicts = judged(drafting(evidence(alike(200), CHEAPER), arm, 7, 5, answers=1))
    status, why = drafted(verdicts, told_of)
    assert (status, exit_of(verdicts)) == ("undecided", Exit.UNDECIDED)
    assert f"{arm} is to " in why
    assert "it drafted 7 tokens, 5 accepted" in why
    assert drafted(judged(drafting(evidence(alike(200), CHEAPER), arm, 0, 0)))[0] == "proven"


def test_the_times_of_an_arm_that_drafted_nothing_advise_no_speculation():
    long = [tuple(range(200))] * 60
    given = evidence(alike(60), CHEAPER, answers=dict.fromkeys(("baseline", "int4", "drafted", "int4+drafted"), long))
    assert answer(judged(given)).first == "speculate"
    assert answer(judged(drafting(given, "drafted", None, None))).first == "unknown"


def test_a_policy_that_declares_what_was_drafted_comes_back_whole():
    told = replace(
        POLICY, four_arm=replace(ARMS, temperature=0.7, drafting=(Drafted(arm="drafted", proposed=3, accepted=1),))
    )
    assert plain.policy(plain.policy_to_json(told)) == told
