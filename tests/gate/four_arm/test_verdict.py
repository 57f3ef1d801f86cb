"""Four arms: which one is to be served, step by step, and why not the others."""

from __future__ import annotations

from dataclasses import replace
from math import nan

import numpy as np
import pytest

from qualgate.errors import Exit, UsageError
from qualgate.gate.decide import exit_of
from qualgate.gate.four_arm.advice import Traffic, advise
from qualgate.gate.four_arm.verdict import decide_four
from qualgate.gate.verdict import decide_plain
from qualgate.records import NOISE, Quarantine, Rule, RunEvidence, Slo
from qualgate.store import plain
from tests.gate.four import ARMS, NAMES, POLICY, PRICES, alike, evidence, with_units

CHEAPER = {"baseline": 10.0, "int4": 8.0, "drafted": 7.0, "int4+drafted": 4.0}


def words(verdicts) -> dict[str, str]:
    return {verdict.variant: verdict.word for verdict in verdicts}


def answer(verdicts):
    return verdicts[-1].four_arm


def step(verdicts, arm, name):
    return next(one for one in answer(verdicts).steps if (one.arm, one.step) == (arm, name))


def worse(n: int, lost: int) -> np.ndarray:
    """Scores of an arm that loses so many of the baseline's n cases."""
    scores = alike(n)["baseline"].copy()
    scores[-lost:] = 0
    return scores


LOSSES = {"int4": worse(2000, 40), "int4+drafted": worse(2000, 40)}  # two points lost, three more allowed


@pytest.mark.parametrize(
    ("right", "seconds", "choice", "word"),
    [
        (alike(200), {}, "int4+drafted", "approve"),
        (alike(200), {"int4+drafted": 7.0}, "drafted", "undecided"),
        (alike(400), {"int4+drafted": 7.5}, "drafted", "block"),
        (alike(200), {"drafted": 8.0, "int4+drafted": 8.0}, "int4", "undecided"),
        (alike(2000) | LOSSES, {"drafted": 8.0, "int4+drafted": 8.0}, "drafted", "undecided"),
    ],
    ids=[
        "both is best",
        "both as dear as the better",
        "both dearer",
        "a tie: fewer parts",
        "a tie: a loss is proven of int4",
    ],
)
def test_both_that_does_not_beat_the_better_single_arm_gives_way_to_it(right, seconds, choice, word):
    verdicts = decide_four(evidence(right, CHEAPER | seconds), POLICY)
    assert answer(verdicts).choice == choice
    assert (words(verdicts)["int4"], words(verdicts)["int4+drafted"]) == ("approve", word)
    assert ("simpler" in step(verdicts, "int4+drafted", "value").reason) == (word != "approve")


def test_no_arm_replaces_a_baseline_that_none_is_worth_leaving():
    verdicts = decide_four(evidence(alike(200), dict.fromkeys(NAMES, 10.0)), POLICY)
    assert answer(verdicts).choice == "baseline"
    assert set(words(verdicts).values()) == {"block"}
    assert exit_of(verdicts) == Exit.BLOCK


def lengthy(margins: float) -> RunEvidence:
    """60 answers of 200 tokens, so many that one near tie of them is no defect."""
    return evidence(alike(60), CHEAPER, answers=dict.fromkeys(NAMES, [tuple(range(200))] * 60), margins=margins)


@pytest.mark.parametrize(
    ("gap", "status"), [(1e-6, "proven"), (1e-3, "broken"), (nan, "broken"), (-1.0, "broken"), (None, "broken")]
)
def test_a_difference_is_excused_by_a_near_tie_of_the_targets_own_logits(gap, status):
    given = lengthy(gap or 0.0)
    given = with_units(given, "baseline", lambda u: replace(u, margins=None) if gap is None else u)
    other = np.array([0, 1, 99], "<i4").tobytes()
    given = with_units(given, "drafted", lambda u: replace(u, answer=other) if u.key.case_id == "c-0001" else u)
    assert step(decide_four(given, POLICY), "drafted", "parity").status == status


def interacting(n=2500, lost=163, gained=112):
    """Both differs from what the two do alone on 11 % of cases, and loses two points."""
    right = alike(n)
    both = right["baseline"].copy()
    both[n - lost :] = 0
    both[:gained] = 1
    return right | {"int4+drafted": both}


def test_a_planted_interaction_is_found_and_named_though_sampled_answers_may_differ():
    policy = replace(POLICY, four_arm=replace(ARMS, parity="sampled"))
    verdicts = decide_four(evidence(interacting(), CHEAPER), policy)
    assert words(verdicts) == {"int4": "approve", "drafted": "approve", "int4+drafted": "block"}
    assert "loses 2.0 points beyond what int4 and drafted lose" in verdicts[-1].reasons[0]
    assert answer(verdicts).choice == "drafted"


def test_quality_lost_by_quantization_blocks_it_and_both_but_not_speculation():
    lost = {"int4": worse(400, 50), "int4+drafted": worse(400, 50)}
    verdicts = decide_four(evidence(alike(400) | lost, CHEAPER), POLICY)
    assert words(verdicts) == {"int4": "block", "drafted": "approve", "int4+drafted": "block"}
    assert step(verdicts, "int4+drafted", "quality").status == "broken"
    assert answer(verdicts).choice == "drafted"


def test_an_arm_outside_the_slo_is_not_chosen_however_cheap():
    verdicts = decide_four(evidence(alike(200), CHEAPER), replace(POLICY, slo=Slo(tpot=0.005)))
    assert {step(verdicts, name, "slo").status for name in NAMES[1:]} == {"broken"}
    assert answer(verdicts).choice == "baseline"


def test_without_prices_the_seconds_of_the_answers_are_the_cost():
    verdicts = decide_four(evidence(alike(200), CHEAPER), replace(POLICY, prices=None))
    assert answer(verdicts).choice == "int4+drafted"
    assert answer(verdicts).services[0].prices.startswith("s, version none")


@pytest.mark.parametrize("arm", NAMES)
def test_an_arm_with_a_missing_unit_chooses_nothing(arm):
    given = evidence(alike(60), CHEAPER)

    def short(found):
        return replace(found, units=found.units[found.name == arm :])

    given = replace(given, baseline=short(given.baseline), variants=tuple(map(short, given.variants)))
    verdicts = decide_four(given, POLICY)
    assert exit_of(verdicts) == Exit.INFRASTRUCTURE
    assert answer(verdicts).choice == ""
    assert "approve" not in words(verdicts).values()


@pytest.mark.parametrize(("n", "right", "cut"), [(40, 40, 0), (400, 20, 0), (400, 400, 100)])
def test_equal_answers_of_speculation_prove_no_more_than_the_same_answers_of_any_variant(n, right, cut):
    """Too few of them, a baseline that is right on too little, one that was cut off."""
    correct = (np.arange(n) < right).astype(float)
    said = evidence(dict.fromkeys(NAMES, correct), CHEAPER)

    def short(arm):
        units = (replace(u, truncated=k >= n - cut, finished=k < n - cut) for k, u in enumerate(arm.units))
        return replace(arm, units=tuple(units))

    said = replace(said, baseline=short(said.baseline), variants=tuple(short(arm) for arm in said.variants))
    verdicts = decide_four(said, POLICY)
    alone = tuple(key for key in said.expected if key.arm in ("baseline", "drafted"))
    (plain_gate,) = decide_plain(
        replace(said, variants=said.variants[1:2], expected=alone), replace(POLICY, four_arm=None)
    )
    assert plain_gate.word == "undecided"
    assert step(verdicts, "drafted", "parity").status == "proven"
    assert step(verdicts, "drafted", "quality").status == "undecided"
    assert exit_of(verdicts) == Exit.UNDECIDED


def test_a_stored_verdict_and_policy_come_back_whole():
    verdicts = decide_four(evidence(alike(60), CHEAPER), POLICY)
    assert tuple(plain.verdict(plain.to_json(verdict)) for verdict in verdicts) == verdicts
    policy = replace(POLICY, slo=Slo(e2e=10.0), feedback="a" * 64)
    assert plain.policy(plain.policy_to_json(policy)) == policy


def test_arms_that_are_not_in_the_run_are_refused():
    given = evidence(alike(30), CHEAPER)
    with pytest.raises(UsageError, match="does not have"):
        decide_four(given, replace(POLICY, four_arm=replace(ARMS, both="prod")))
    with pytest.raises(UsageError, match="four different"):
        decide_four(given, replace(POLICY, four_arm=replace(ARMS, both="int4")))


SLOW_DECODE = Traffic(prefill_share=0.2, mean_output=200.0, speedup=1.6)


@pytest.mark.parametrize(
    ("traffic", "first"),
    [
        (Traffic(memory_share=0.95, prefill_share=0.8), "quantize"),
        (SLOW_DECODE, "speculate"),
        (replace(SLOW_DECODE, tool_share=0.5), "neither"),
        (replace(SLOW_DECODE, prefill_share=0.6), "neither"),
        (replace(SLOW_DECODE, mean_output=63.0), "neither"),
        (replace(SLOW_DECODE, speedup=1.1), "neither"),
        (replace(SLOW_DECODE, prefill_share=0.45), "neither"),
        (replace(SLOW_DECODE, speedup=None), "unknown"),
        (replace(SLOW_DECODE, mean_output=None), "unknown"),
        (replace(SLOW_DECODE, speedup=None, mean_output=20.0), "neither"),
        (Traffic(), "unknown"),
    ],
)
def test_what_to_try_first_follows_what_the_traffic_is_bound_by(traffic, first):
    assert advise(traffic)[0] == first


def test_the_advice_says_what_is_short_or_missing_or_would_help():
    assert "answers of 20 tokens are short: below 64" in advise(replace(SLOW_DECODE, mean_output=20.0))[1]
    assert "its answers were not timed" in advise(replace(SLOW_DECODE, speedup=None))[1]
    bound_by_prompts = answer(decide_four(evidence(alike(60), CHEAPER, ttft=0.9), POLICY))
    assert (bound_by_prompts.first, "prefix caching" in bound_by_prompts.first_why) == ("neither", True)
    unknown, known = (advise(Traffic(prefill_share=0.45, memory_share=share))[1] for share in (None, 0.5))
    assert ("declare `memory_share`" in unknown, "memory" in known) == (True, False)


@pytest.mark.parametrize(
    ("device", "concurrency", "first"), [(1090.0, 1.0, "neither"), (1090.0, 4.0, "quantize"), (None, 4.0, "neither")]
)
def test_memory_is_full_by_what_was_measured_of_weights_cache_and_device(device, concurrency, first):
    """870 bytes of weights; an answer with its prompt has 30 tokens, 90 bytes: one fills 88 % of 1,090, four 113 %."""
    given = with_units(evidence(alike(60), CHEAPER), "baseline", lambda u: replace(u, prompt_tokens=10))
    facts = {"memory.weights": 870.0, "memory.cache_token": 3.0} | ({"device.memory": device} if device else {})
    given = replace(given, baseline=replace(given.baseline, facts=facts))
    prices = replace(PRICES, concurrency=concurrency)
    found = answer(decide_four(given, replace(POLICY, prices=prices)))
    assert found.first == first, found.first_why
    declared = replace(POLICY, prices=prices, four_arm=replace(ARMS, memory_share=0.2))
    assert answer(decide_four(given, declared)).first == "neither"


def test_drift_measured_from_the_baseline_contradicts_no_answer_of_the_quantized_arm():
    """`both` parts from the baseline at the last token, as its drift says, and never from `int4`, its own target."""
    given = evidence(alike(200), CHEAPER)

    def measured(unit):
        said = replace(unit, token_ids=unit.answer, finish_reason="length")
        return replace(said, kl=(0.0,) * 20, top1_agreement=0.95, first_divergence=19)

    for arm in ("int4", "int4+drafted"):
        given = with_units(given, arm, measured)
    given = with_units(given, "baseline", lambda unit: replace(unit, token_ids=unit.answer, finish_reason="length"))
    assert answer(decide_four(given, POLICY)).choice == "int4+drafted"


@pytest.mark.parametrize("fault", ["old", "quarantined"])
def test_what_may_not_be_decided_chooses_no_arm_by_parity_either(fault):
    given = replace(evidence(alike(200), CHEAPER), made_at="2026-01-01T00:00:00+00:00")
    held = tuple(
        Quarantine(case=f"c-{index:04d}", owner="Ada", expires="2030-01-01", reason="flaky") for index in range(100)
    )
    policy = replace(POLICY, max_age=3600) if fault == "old" else replace(POLICY, quarantine=held)
    assert exit_of(decide_four(given, policy, "2026-01-01T00:30:00+00:00")) == (
        Exit.APPROVE if fault == "old" else Exit.UNDECIDED
    )
    late = decide_four(given, policy, "2026-01-02T00:00:00+00:00")
    assert (exit_of(late), answer(late).choice, set(words(late).values())) == (Exit.UNDECIDED, "", {"undecided"})


NOW = "2026-11-21T10:00:00+00:00"


def test_a_quarantined_case_is_no_evidence_of_parity_service_levels_or_value():
    given = evidence(alike(200), CHEAPER)
    other = np.array([0, 99], "<i4").tobytes()

    def odd(unit):
        """Another answer, of unknown time, that cost more than all the others."""
        dear = (replace(unit.attempts[0], seconds=1e6),)
        return replace(unit, answer=other, values=unit.values | {"latency.e2e": None}, attempts=dear)

    given = with_units(given, "drafted", lambda unit: odd(unit) if unit.key.case_id == "c-0007" else unit)
    policy = replace(POLICY, slo=Slo(e2e=100.0))
    statuses = {
        name: step(decide_four(given, policy, NOW), "drafted", name).status for name in ("parity", "slo", "value")
    }
    assert statuses == {"parity": "broken", "slo": "undecided", "value": "undecided"}
    held = Quarantine(case="c-0007", owner="Ada", expires="2030-01-01", reason="the reference is wrong")
    verdicts = decide_four(given, replace(policy, quarantine=(held,)), NOW)
    assert [one.status for one in answer(verdicts).steps if one.arm == "drafted"] == ["proven"] * 5
    assert {one.units for one in answer(verdicts).services} == {199}
    assert {one.n for one in answer(verdicts).interactions} == {199}
    assert words(verdicts) == {"int4": "approve", "drafted": "review", "int4+drafted": "approve"}
    assert "proven only without the quarantined cases" in verdicts[1].reasons[0], "a person has to sign for such parity"
    for verdict in verdicts:
        assert "c-0007 does not count until 2030-01-01: the reference is wrong (Ada)" in verdict.reasons
    after = decide_four(given, replace(policy, quarantine=(held,)), "2030-01-01T00:00:00+00:00")
    assert step(after, "drafted", "parity").status == "broken", "it ends by itself"


def against_itself(differing: int) -> RunEvidence:
    """Four arms, and the A/A arm, which says another thing for so many cases."""
    given = evidence(alike(200), CHEAPER)
    for name in NAMES:
        given = with_units(given, name, lambda unit: replace(unit, token_ids=unit.answer, finish_reason="length"))
    name = f"baseline{NOISE}"
    other = np.array([7], "<i4").tobytes()
    units = tuple(
        replace(unit, key=replace(unit.key, arm=name), token_ids=other if index < differing else unit.token_ids)
        for index, unit in enumerate(given.baseline.units)
    )
    again = replace(given.baseline, name=name, units=units)
    return replace(
        given, variants=(*given.variants, again), expected=(*given.expected, *(unit.key for unit in again.units))
    )


@pytest.mark.parametrize(("differing", "choice"), [(0, "int4+drafted"), (1, "baseline")])
def test_the_baseline_against_itself_is_judged_beside_four_arms(differing, choice):
    policy = replace(POLICY, rules=(*POLICY.rules, Rule(metric="stability.rerun", min=1.0)))
    verdicts = decide_four(against_itself(differing), policy)
    assert list(words(verdicts)) == list(NAMES[1:]), "the A/A arm is none of them"
    assert answer(verdicts).choice == choice, "equal answers to one question do not show that they repeat"
    assert all(verdict.reasons[-1].startswith("noise floor, lost / gained") for verdict in verdicts)
    without = replace(policy, rules=POLICY.rules)
    assert answer(decide_four(against_itself(differing), without)).choice == "int4+drafted", (
        "it decides by a rule alone"
    )


def test_a_person_is_asked_before_an_arm_is_served_as_before_any_variant():
    verdicts = decide_four(evidence(alike(200), CHEAPER), replace(POLICY, review="always"))
    assert (exit_of(verdicts), answer(verdicts).choice) == (Exit.REVIEW, "int4+drafted")
    assert set(words(verdicts).values()) == {"review"}
    slower = Rule(metric="latency.e2e", max_ratio=0.5, tier="supporting")  # both takes 0.4 of the time, drafted 0.7
    policy = replace(POLICY, rules=(*POLICY.rules, slower))
    verdicts = decide_four(evidence(alike(200), CHEAPER | {"int4+drafted": 7.5}), policy)
    assert (exit_of(verdicts), answer(verdicts).choice) == (Exit.REVIEW, "drafted")
    assert verdicts[1].reasons[0].startswith("latency.e2e [pooled] is 0.7 times")
    assert exit_of(decide_four(evidence(alike(200), CHEAPER), policy)) == Exit.APPROVE, "the chosen arm keeps the rule"


@pytest.mark.parametrize(("arm", "parity"), [("drafted", "identical"), ("int4+drafted", "lossy")])
def test_answers_said_to_be_equal_prove_nothing_against_their_own_scores(arm, parity):
    free = CHEAPER | {arm: 1e-3}  # so that value is kept
    policy = replace(POLICY, four_arm=replace(ARMS, parity=parity))
    verdicts = decide_four(evidence(alike(300) | {arm: worse(300, 90)}, free), policy)
    assert step(verdicts, arm, "quality").status == "broken"
    assert words(verdicts)[arm] == "block"


def test_an_arm_that_no_user_spoke_of_is_not_taken_for_uncorrected():
    given = evidence(alike(200), CHEAPER | {"int4+drafted": 4.0})
    heard = {unit.key: True for unit in given.baseline.units}
    found = decide_four(replace(given, corrected=heard), replace(POLICY, feedback="f" * 64))
    told = answer(found)
    assert (told.choice, told.exit) == ("", Exit.UNDECIDED)
    assert any("no user was heard" in step.reason for step in told.steps if step.step == "value")
