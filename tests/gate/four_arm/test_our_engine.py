"""Four arms of our own engine: its steps say who drafted, its rules what is promised, and its bits excuse nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualgate.gate.decide import decide
from qualgate.gate.four_arm.advice import Traffic, advise
from qualgate.gate.four_arm.verdict import decide_four
from qualgate.records import (
    ArmStep,
    DraftSource,
    Gain,
    Generation,
    Policy,
    Rate,
    RunEvidence,
    Speculation,
    UnitEvidence,
)
from tests.drafts import steps_of
from tests.gate.four import ARMS, NAMES, POLICY, alike, evidence, with_units
from tests.gate.four_arm.test_verdict import CHEAPER, SLOW_DECODE, answer, interacting, lengthy, step, words, worse

DRAFTING = ("drafted", "int4+drafted")
KEYED = Speculation(draft=DraftSource(kind="ngram"), tokens=4)
LOSSY = replace(KEYED, rule="typical")
SAMPLED = replace(POLICY, four_arm=replace(ARMS, parity="sampled"))


def ours(
    given: RunEvidence, engine: str = "packed", spec: Speculation | None = KEYED, chances=(0.8, 0.7, 0.6, 0.5)
) -> RunEvidence:
    """The same four arms as our own engine would have run them, every answer told by its passes."""

    def told(unit: UnitEvidence) -> UnitEvidence:
        steps = tuple(steps_of(unit.key, unit.tokens or 0, chances, proposer="ngram"))
        sums = sum(one.proposed for one in steps), sum(one.accepted for one in steps)
        return replace(unit, draft_steps=steps, draft_proposed=sums[0], draft_accepted=sums[1])

    for name in DRAFTING:
        given = with_units(given, name, told)
    ran = Generation(engine=engine, passes=1, tokens=1)
    arms = [
        replace(arm, generation=ran, speculation=spec if arm.name in DRAFTING else None)
        for arm in (given.baseline, *given.variants)
    ]
    return replace(given, baseline=arms[0], variants=tuple(arms[1:]))


def differing(given: RunEvidence, arm: str = "drafted", cases=("c-0001",)) -> RunEvidence:
    """The arm says another third token in these cases."""
    other = np.array([0, 1, 99], "<i4").tobytes()
    return with_units(given, arm, lambda u: replace(u, answer=other) if u.key.case_id in cases else u)


def parity(given: RunEvidence, arm: str = "drafted", policy: Policy = POLICY) -> ArmStep:
    return step(decide_four(given, policy), arm, "parity")


# -------------------------------------------------------------------------------------------------------- drafting


def test_the_steps_of_our_engine_say_who_drafted_and_how_much():
    given = ours(evidence(alike(200), CHEAPER))
    steps = [one for unit in given.variants[1].units for one in unit.draft_steps if one.position]
    proposed, accepted = sum(one.proposed for one in steps), sum(one.accepted for one in steps)
    found = step(decide_four(given, POLICY), "drafted", "drafting")
    assert (found.status, found.reason) == (
        "proven",
        f"drafted {proposed:,} tokens, {accepted:,} accepted ({accepted / proposed:.1%}), in {len(steps):,} passes",
    )
    assert answer(decide_four(given, POLICY)).choice == "int4+drafted"


UNTOLD = {"draft_steps": (), "draft_accepted": 0}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"draft_proposed": 0, "draft_accepted": 0}, "had no draft"),
        (UNTOLD | {"draft_proposed": 40}, "other counts of drafts than the passes add up to"),
        (UNTOLD | {"draft_proposed": 0}, "no pass of it was told"),
    ],
    ids=["passes without drafts", "counts without passes", "neither"],
)
def test_an_arm_of_our_engine_whose_drafts_no_pass_tells_is_no_speculation(changes, why):
    def silent(unit: UnitEvidence) -> UnitEvidence:
        plain = tuple(replace(one, proposed=0, accepted=0, rejected=0) for one in unit.draft_steps)
        return replace(unit, **{"draft_steps": plain, **changes})

    verdicts = decide_four(with_units(ours(evidence(alike(200), CHEAPER)), "drafted", silent), POLICY)
    found = step(verdicts, "drafted", "drafting")
    assert (found.status, why in found.reason) == ("undecided", True), found.reason
    assert answer(verdicts).choice != "drafted"


def test_a_baseline_of_our_engine_that_drafted_makes_the_four_no_four_arms():
    given = ours(evidence(alike(200), CHEAPER))
    told = given.variants[1].units[0]
    fields = {name: getattr(told, name) for name in ("draft_steps", "draft_proposed", "draft_accepted")}
    given = with_units(given, "baseline", lambda u: replace(u, **fields) if u.key.case_id == "c-0000" else u)
    found = step(decide_four(given, POLICY), "drafted", "drafting")
    assert (found.status, "baseline is to draft nothing" in found.reason) == ("undecided", True)


# ---------------------------------------------------------------------------------------------------------- parity


@pytest.mark.parametrize(
    ("engine", "status"),
    [("packed", "broken"), ("padded", "proven"), ("packed, padded", "proven"), ("", "proven")],
)
def test_a_near_tie_excuses_nothing_on_packed_passes_and_what_it_did_elsewhere(engine, status):
    """200 tokens in each of 60 answers, and one answer that leaves its target's at a gap of 1e-6."""
    given = differing(ours(lengthy(1e-6), engine, spec=None))
    if not engine:
        given = differing(lengthy(1e-6))
    found = parity(given)
    assert found.status == status
    assert ("no batch, draft or near tie changes a bit" in found.reason) == (status == "broken")
    if status == "broken":
        assert "1 of 60 answers are not baseline's, first at token 2 of code/c-0001" in found.reason
        assert words(decide_four(given, POLICY))["drafted"] == "block"


def test_one_padded_arm_of_the_two_is_enough_for_a_tie():
    given = differing(ours(lengthy(1e-6)), "int4+drafted")
    assert parity(given, "int4+drafted").status == "broken"
    int4, *others = given.variants
    padded = replace(given, variants=(replace(int4, generation=Generation(engine="padded")), *others))
    assert parity(padded, "int4+drafted").status == "proven"
    assert parity(differing(padded), "drafted").status == "broken", "its own target ran in packed passes"


def test_drawn_answers_whose_drafts_are_keyed_are_compared_token_by_token_where_both_drew_by_one_seed():
    same = ours(evidence(alike(200), CHEAPER))
    found = parity(same, policy=SAMPLED)
    assert (found.status, found.reason) == ("proven", "all 200 answers are baseline's, token for token")
    other = differing(same)
    assert parity(other, policy=SAMPLED).status == "broken"
    assert "not baseline's, first at token 2" in parity(other, policy=SAMPLED).reason
    for changed in (ours(other, spec=replace(KEYED, rule="speculative_sampling")), ours(other, engine="padded")):
        assert "within every critical margin" in parity(changed, policy=SAMPLED).reason


@pytest.mark.parametrize("declared", ["identical", "sampled", "lossy"])
def test_a_rule_that_changes_the_distribution_is_judged_by_quality_whatever_is_declared(declared):
    policy = replace(POLICY, four_arm=replace(ARMS, parity=declared))
    every = [f"c-{number:04d}" for number in range(300)]
    given = ours(evidence(alike(300), CHEAPER), spec=LOSSY)
    found = step(decide_four(differing(given, cases=every), policy), "drafted", "parity")
    assert (found.status, found.reason) == (
        "proven", "its rule of acceptance (typical) changes the distribution, so its quality is judged instead",
    )  # fmt: skip
    lost = ours(evidence(alike(300) | {"drafted": worse(300, 60)}, CHEAPER), spec=LOSSY)
    verdicts = decide_four(differing(lost, cases=every), policy)
    assert (words(verdicts)["drafted"], step(verdicts, "drafted", "quality").status) == ("block", "broken")


def test_an_interaction_of_a_lossy_rule_is_no_defect():
    given = ours(evidence(interacting(1000, 70, 40), CHEAPER), spec=LOSSY)
    assert step(decide_four(given, POLICY), "int4+drafted", "parity").status == "proven"
    sampled = ours(evidence(interacting(1000, 70, 40), CHEAPER), spec=replace(KEYED, rule="speculative_sampling"))
    assert "beyond what int4 and drafted lose" in parity(sampled, "int4+drafted", SAMPLED).reason


def test_what_is_declared_lossy_excuses_no_drafts_that_promise_every_token():
    policy = replace(POLICY, four_arm=replace(ARMS, parity="lossy"))
    assert parity(differing(ours(evidence(alike(200), CHEAPER))), policy=policy).status == "broken"
    assert parity(differing(evidence(alike(200), CHEAPER)), policy=policy).status == "proven"


# ---------------------------------------------------------------------------------------------------------- advice

GAIN = Gain(
    against="baseline", same_weights=True, predicted=1.8,
    measured=Rate(numerator=2.0, denominator=1.0, value=2.0, lower=1.9, upper=2.1),
)  # fmt: skip
UNTIMED = replace(GAIN, measured=Rate(numerator=0, denominator=0, value=None, reason="no time"))


def test_the_advice_tells_the_measured_gain_with_its_bounds_and_the_predicted_one():
    assert advise(replace(SLOW_DECODE, gain=GAIN)) == (
        "speculate",
        "80% of the time is decoding, answers have 200 tokens, and speculation is 1.60 times as fast (2.00 times a "
        "token after the first (1.90 to 2.10), 1.80 predicted from acceptance and what passes cost)",
    )
    no_bounds = replace(GAIN, predicted=None, measured=replace(GAIN.measured, lower=None, upper=None))
    assert advise(replace(SLOW_DECODE, gain=no_bounds))[1].endswith("(2.00 times a token after the first)")


@pytest.mark.parametrize(("predicted", "first"), [(1.11, "speculate"), (1.1, "neither"), (None, "unknown")])
def test_without_times_the_law_advises_and_without_its_parts_nothing(predicted, first):
    gain = replace(UNTIMED, predicted=predicted, predicted_reason="c was not measured" if predicted is None else "")
    found, why = advise(replace(SLOW_DECODE, speedup=None, gain=gain))
    assert found == first
    assert ("as predicted from its acceptance" in why) == (predicted is not None)
    assert ("nor can be predicted: c was not measured" in why) == (predicted is None)
    assert advise(Traffic())[0] == "unknown"


def test_a_four_arm_answer_predicts_from_what_was_measured_of_the_drafting_arm():
    long = dict.fromkeys(NAMES, [tuple(range(200))] * 60)
    given = ours(evidence(alike(60), CHEAPER, answers=long))
    facts = {"speculation.draft_cost.1": 0.01, "speculation.verify_cost.5": 1.1}
    int4, drafted, both = given.variants
    given = replace(given, variants=(int4, replace(drafted, facts=facts), both))
    verdicts = decide(given, POLICY).verdicts
    found = answer(verdicts)
    assert found.first == "speculate"
    gain = verdicts[1].speculated.gain
    assert f"{gain.predicted:.2f} predicted from acceptance" in found.first_why
    assert f"({gain.measured.value:.2f} times a token after the first" in found.first_why
