"""What speculation did, against counts made anew: step by step in plain loops, and in SQL from the store."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from qualgate.gate.comparisons.draft_levels import passes_saved
from qualgate.gate.comparisons.speculation import speculated
from qualgate.gate.decide import decide
from qualgate.records import (
    CACHE_TOKEN,
    DRAFT_WORKSPACE,
    DraftStep,
    Generation,
    Rate,
    RunEvidence,
    UnitEvidence,
    UnitKey,
)
from qualgate.store import plain
from tests.drafts import steps_of
from tests.gate.four import POLICY, alike, evidence, with_units
from tests.gate.four_arm.test_verdict import CHEAPER

WORDS = ("drafted", "int4+drafted")


def speculating(n: int = 400, chances=(0.9, 0.8, 0.7, 0.6), under=(), arms=WORDS, tokens: int = 60) -> RunEvidence:
    """Four arms whose two drafting ones tell their steps; every third case is of another task. No answer changes."""
    said = dict.fromkeys(("baseline", "int4", "drafted", "int4+drafted"), [tuple(range(tokens))] * n)
    found = evidence(alike(n), CHEAPER, answers=said)
    for arm in arms:
        found = with_units(
            found, arm, lambda unit: replace(unit, draft_steps=tuple(steps_of(unit.key, tokens, chances, under)))
        )
    tasks = {("code", f"c-{number:04d}"): "mail" for number in range(0, n, 3)}
    return replace(found, tasks=tasks)


def of(found: RunEvidence, arm: str = "drafted", alpha: float = 0.05):
    return speculated(found, next(one for one in found.variants if one.name == arm), alpha)


def steps_in(found: RunEvidence, arm: str, level: int = 1) -> list[DraftStep]:
    """But that of the pass that read the prompt."""
    units = next(one for one in found.variants if one.name == arm).units
    return [step for unit in units for step in unit.draft_steps if step.level == level and step.position]


@pytest.mark.parametrize("under", [(), (0.5, 0.5)])
def test_every_count_is_that_of_the_steps_one_by_one(under):
    found = speculating(under=under)
    told = of(found)
    assert [level.level for level in told.levels] == ([1, 2] if under else [1])
    for level in told.levels:
        steps = steps_in(found, "drafted", level.level)
        verifying = [step for step in steps if step.proposed]
        assert (level.passes, level.verifications, level.without_draft) == (
            len(steps), len(verifying), len(steps) - len(verifying),
        )  # fmt: skip
        for name in ("proposed", "accepted", "rejected", "discarded", "unverified"):
            assert getattr(level, name) == sum(getattr(step, name) for step in steps), name
        assert level.proposed == level.accepted + level.rejected + level.discarded
        assert level.acceptance_rate.value == pytest.approx(level.accepted / level.proposed)
        mean = sum(step.accepted for step in steps) / len(verifying)
        assert level.accepted_per_verification.value == pytest.approx(mean)
        assert level.tokens_per_verification_with_bonus.value == pytest.approx(mean + 1)
        for place in level.positions:
            reached = [s for s in steps if s.accepted >= place.position - 1 and s.proposed >= place.position]
            kept = sum(step.accepted >= place.position for step in reached)
            assert place.unconditional.value == pytest.approx(kept / len(verifying))
            assert place.conditional.value == pytest.approx(kept / len(reached))
        assert sum(place.unconditional.numerator for place in level.positions) == level.accepted
        for task, rate in level.rejection.items():
            mine = [s for s in steps if found.tasks.get((s.key.evalset, s.key.case_id), s.key.evalset) == task]
            rejected = sum(step.rejected for step in mine)
            assert rate.value == pytest.approx(rejected / (rejected + sum(step.accepted for step in mine)))
        assert set(level.rejection) == {"mail", "code"}
    proposers = ["mxfp4 draft", "ngram"] if under else ["mxfp4 draft"]
    assert [level.proposer for level in told.levels] == proposers


def test_target_passes_saved_are_of_each_answer_without_the_pass_that_read_its_prompt():
    found, tokens = speculating(n=60, under=(0.5,)), 60
    steps = steps_in(found, "drafted")
    assert of(found).passes_saved.value == pytest.approx(1 - len(steps) / (60 * (tokens - 1)))

    def plainly(unit: UnitEvidence) -> UnitEvidence:
        passes = range(1, tokens)
        none = {"level": 1, "proposed": 0, "accepted": 0, "rejected": 0}
        return replace(unit, draft_steps=tuple(DraftStep(key=unit.key, position=at, **none) for at in passes))

    told = of(with_units(found, "drafted", plainly))
    assert told.passes_saved.value == 0.0
    (level,) = told.levels
    assert (level.without_draft, level.verifications) == (60 * (tokens - 1), 0)
    assert (level.acceptance_rate.value, level.acceptance_rate.reason) == (None, "nothing was proposed")
    assert level.accepted_per_verification.value is None
    one_token = with_units(found, "drafted", lambda unit: replace(unit, tokens=1, draft_steps=()))
    assert passes_saved(one_token.variants[1].units, np.arange(60), 0.05).reason.startswith("no answer has a token")


def test_an_answer_whose_beginning_was_read_counts_from_its_first_step_on():
    key = UnitKey("drafted", "code", "c-0000")
    steps = tuple(DraftStep(key=key, level=1, position=at, proposed=2, accepted=2, rejected=0) for at in (40, 43, 46))
    unit = UnitEvidence(key=key, case_hash="x", status="done", tokens=49, draft_steps=steps)
    assert passes_saved([unit], np.zeros(1), 0.05).value == pytest.approx(1 - 3 / 9)


def test_a_task_with_few_tested_tokens_says_so_instead_of_a_rate():
    found = replace(speculating(n=60), tasks={("code", "c-0003"): "rare"})
    rate = of(found).levels[0].rejection["rare"]
    tested = [s for s in steps_in(found, "drafted") if s.key.case_id == "c-0003"]
    count = sum(step.accepted + step.rejected for step in tested)
    assert 0 < count < 200
    assert (rate.value, rate.denominator) == (None, count)
    assert rate.reason == f"insufficient: {count} tokens tested, 200 needed"


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        ({}, "what a drafted token costs (c) was not measured"),
        ({"speculation.verify_cost.5": 1.2}, "what a drafted token costs (c) was not measured"),
        ({"speculation.draft_cost.1": 0.3}, "what a pass over 2 rows costs (v) was not measured"),
        ({"speculation.draft_cost.1": 0.3, "speculation.verify_cost.3": 1.1}, "what a pass over 4 rows costs (v) was"),
    ],
)
def test_a_gain_is_predicted_only_from_costs_that_were_measured(facts, why):
    found = speculating(n=60)
    arm = replace(found.variants[1], facts=facts)
    told = speculated(replace(found, variants=(found.variants[0], arm)), arm, 0.05)
    assert told.gain.predicted is None
    assert why in told.gain.predicted_reason


def test_the_measured_gain_is_of_seconds_a_token_after_the_first_against_the_same_weights_where_an_arm_has_them():
    jitter = np.random.default_rng(7).lognormal(0, 0.1, 400)

    def later(unit):
        longer = unit.values["latency.e2e"] * jitter[int(unit.key.case_id[2:])]
        return replace(unit, values=unit.values | {"latency.e2e": longer})

    found = with_units(speculating(), "drafted", later)
    seconds = {
        arm.name: sum(u.values["latency.e2e"] - u.values["latency.ttft"] for u in arm.units)
        for arm in (found.baseline, *found.variants)
    }
    told = of(found).gain
    assert (told.against, told.same_weights) == ("baseline", False)
    assert told.measured.value == pytest.approx(seconds["baseline"] / seconds["drafted"])
    assert 0.98 < told.measured.lower / told.measured.value < 1 < told.measured.upper / told.measured.value < 1.02
    int4, drafted, both = found.variants
    same = replace(both, identity=int4.identity)
    told = speculated(replace(found, variants=(int4, drafted, same)), same, 0.05).gain
    assert (told.against, told.same_weights) == ("int4", True)
    assert told.measured.value == pytest.approx(seconds["int4"] / seconds["int4+drafted"])


def test_an_arm_that_holds_keys_and_values_otherwise_is_no_target_and_its_cache_no_measure_of_the_drafts():
    found = speculating(n=60)
    int4, drafted, both = found.variants
    assert int4.identity is not None
    mine = replace(int4.identity, kv_cache="int8")
    both = replace(both, identity=mine, facts={**both.facts, CACHE_TOKEN: 30.0})
    int4 = replace(int4, facts={**int4.facts, CACHE_TOKEN: 50.0})
    told = speculated(replace(found, variants=(int4, drafted, both)), both, 0.05)
    assert (told.gain.against, told.gain.same_weights) == ("baseline", False)
    assert "draft_cache_token" not in told.memory
    alone = replace(int4, name="int4+kv8", identity=mine, facts={**int4.facts, CACHE_TOKEN: 20.0})
    told = speculated(replace(found, variants=(int4, drafted, both, alone)), both, 0.05)
    assert (told.gain.against, told.gain.same_weights) == ("int4+kv8", True)
    assert told.memory["draft_cache_token"] == 10.0


def test_answers_without_times_have_no_measured_gain_and_batches_that_nobody_told_no_bounds():
    found = speculating(n=60)
    untimed = with_units(found, "drafted", lambda u: replace(u, values=u.values | {"latency.e2e": None}))
    gain = of(untimed).gain.measured
    assert (gain.value, gain.reason) == (None, "no time was recorded for 60 of 60 answers")
    no_batches = with_units(found, "drafted", lambda u: replace(u, job=None))
    gain = of(no_batches).gain.measured
    assert gain.value is not None
    assert (gain.lower, gain.upper) == (None, None)
    assert "was not recorded" in gain.reason


@pytest.mark.parametrize(
    ("chances", "said"),
    [
        ((0.0,) * 5, "mxfp4 draft is always rejected: 0 of"),
        ((0.003,) * 5, "mxfp4 draft is all but always rejected"),
        ((0.3, 0.8, 0.8, 0.8, 0.8), "its first token is already rejected in "),
        ((0.7, 0.3, 0.5, 0.5, 0.5), "at the first token to "),
        ((0.55,) * 5, "too few for drafts of this length"),
    ],
)
def test_drafts_that_are_wasted_are_named_with_the_cause(chances, said):
    told = of(speculating(chances=chances))
    assert len(told.alerts) == 1
    assert said in told.alerts[0]
    assert ("proposed" in told.alerts[0]) == ("rejected:" not in told.alerts[0])


@pytest.mark.parametrize("chances", [(0.9,) * 5, (0.3,) * 3, (0.95, 0.9, 0.6, 0.5)])
def test_drafts_that_pay_or_are_short_are_no_alert(chances):
    assert of(speculating(chances=chances)).alerts == ()


def test_a_task_that_alone_rejects_is_named():
    found = speculating(chances=(0.75,) * 5)

    def bad(unit):
        if ("code", unit.key.case_id) not in found.tasks:
            return unit
        return replace(unit, draft_steps=tuple(steps_of(unit.key, 60, (0.02,) * 5)))

    (alert,) = of(with_units(found, "drafted", bad)).alerts
    assert "above all in mail, where 9" in alert


def test_a_level_below_that_is_always_rejected_is_named_with_its_level():
    (alert,) = of(speculating(chances=(0.9,) * 8, under=(0.0,) * 4)).alerts
    assert alert.startswith("ngram (level 2) is always rejected")


def test_how_often_drafts_rested_is_of_all_the_arm_s_passes_and_none_of_an_older_run():
    found = speculating(n=60)
    assert (of(found).rested, of(found).because) == (None, "")
    first, arm, last = found.variants
    made = Generation(engine="packed", drafting=60, rested=20, because="a") + Generation(drafting=40, rested=36)
    told = of(replace(found, variants=(first, replace(arm, generation=made), last)))
    assert (told.rested, told.because) == (Rate(numerator=56, denominator=100, value=0.56), "a")


def test_a_gain_that_is_none_and_memory_that_is_given_back_are_told():
    found = speculating()
    slow = with_units(found, "drafted", lambda u: replace(u, values=u.values | {"latency.e2e": 13.5}))
    assert any("gains nothing: 1.0" in line or "gains nothing: 0." in line for line in of(slow).alerts)
    int4, drafted, both = found.variants
    facts = {"memory.weights": 400.0, "memory.draft_weights": 150.0, "memory.cache_token": 9.0, DRAFT_WORKSPACE: 7.0}
    both = replace(both, identity=int4.identity, facts=facts)
    int4 = replace(int4, facts={"memory.cache_token": 6.0})
    base = replace(found.baseline, facts={"memory.weights": 500.0})
    told = speculated(replace(found, baseline=base, variants=(int4, drafted, both)), both, 0.05)
    assert told.memory == {
        "draft_weights": 150.0, "target_weights": 250.0, "saved_by_quantization": 250.0, "draft_cache_token": 3.0,
        "draft_workspace": 7.0,
    }  # fmt: skip
    assert told.alerts == ("the draft's weights take 60% of what quantization saved of the weights",)


def test_only_arms_whose_steps_were_told_say_it_and_the_alert_is_a_reason_of_the_verdict():
    found = speculating(chances=(0.0,) * 5, arms=("drafted",))
    verdicts = decide(found, POLICY).verdicts
    assert [one.speculated is not None for one in verdicts] == [False, True, False], "counts alone are not steps"
    assert verdicts[1].reasons[-1].startswith("mxfp4 draft is always rejected")
    broken = replace(found, integrity=("a unit was changed",))
    assert all(one.speculated is None for one in decide(broken, POLICY).verdicts)
    assert tuple(plain.verdict(plain.to_json(verdict)) for verdict in verdicts) == verdicts
