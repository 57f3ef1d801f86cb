"""A plan on a screen: within its width, with nothing left out that the JSON says."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from qualgate.gate.evidence.quarantine import Held
from qualgate.gate.planning.change import Change
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import PlannedPolicy
from qualgate.gate.planning.power import PlannedRule
from qualgate.pipeline.forecast import ArmForecast, Forecast
from qualgate.records import ArmIdentity, ArmSpec, Case, Evalset, Plan, Policy, Prices, Rule
from qualgate.report.planned_policy import policy_as_lines
from qualgate.report.planning import plan_as_text
from qualgate.report.planning_json import plan_as_json

SET = PlannedSet(name="a", metrics=("exact_match",), cases=3)
LONG = Rule(metric="tool_call.correct", evalset="a-set-with-a-rather-long-name", max_drop=0.05)
POLICY = Policy(rules=(Rule(metric="exact_match", max_drop=0.02), LONG))
ROW = ArmForecast(
    name="awq-int4-with-a-long-name", weights="gptq int4 g128 act-order", cases=1, prompt_tokens=1_234_567,
    answer_tokens=7_654_321, expected_tokens=3_000_000, seconds=4_000.0, measured=False, cost=12.5, most=20.0,
)  # fmt: skip
TAKES = Forecast(arms=(replace(ROW, name="baseline"), ROW), prices=Prices(version="7", currency="EUR", output_token=1))
HELD = Held(cases=frozenset({(LONG.evalset or "", "c0")}), notes=("c0 does not count until 2030-01-01: wrong (ana)",))


def plan() -> Plan:
    sets = Evalset(
        name=LONG.evalset or "", version="2", sha256="s", metrics=("exact_match", "tool_call.correct"),
        cases=tuple(Case(evalset="a", body={"id": f"c{n}"}) for n in range(2)),
    )  # fmt: skip
    identity = ArmIdentity(weights="w", config="c", tokenizer="t", template="p", sampling="s", engine="e")
    return Plan(
        key="k", gate_file="", policy=POLICY, arms=(ArmSpec(name="baseline", model="m"),),
        identities={"baseline": identity}, evalsets=(sets,), jobs=(), artifacts="",
    )  # fmt: skip


def predicted(approve: float = 0.4) -> PlannedPolicy:
    rules = tuple(
        PlannedRule(
            rule=rule.id, name=rule.id, slice="pooled", tier=tier, n=1, clusters=None, approve=0.4, block=0.3,
            disagreement=0.05, needed=822, note="",
        )
        for rule, tier in zip(POLICY.rules, ("critical", "supporting"), strict=True)
    )  # fmt: skip
    lines = ("# instead of - {metric: exact_match, evalset: a-set-with-a-rather-long-name, max_drop: 0.02}",
             "- {metric: exact_match, evalset: a-set-with-a-rather-long-name, max_drop: 0.04}")  # fmt: skip
    changes = (
        Change(kind="wider margins", lines=lines, sets=(replace(SET, cases=1),), policy=POLICY, approve=0.9, block=0.9),
        Change(kind="more cases", lines=("evalset a: 3 cases instead of 1",), sets=(SET,), policy=POLICY,
               approve=0.9, block=0.9),
    )  # fmt: skip
    return PlannedPolicy(
        approve=approve, block=0.5, rules=rules, changes=changes if approve < 0.8 else (), cases={"a": 1}, answers=1,
        draws=100, error=0.003, source="assumed: no earlier run tells",
    )  # fmt: skip


@pytest.mark.parametrize("columns", [80, 120])
def test_a_plan_fits_its_screen_but_for_what_is_to_be_pasted(monkeypatch: pytest.MonkeyPatch, columns: int) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    text = "\n".join([plan_as_text(plan(), TAKES, 1, HELD), *policy_as_lines(predicted(), TAKES)])
    over = [line.strip() for line in text.split("\n") if len(line) > columns]
    assert set(over) <= set(predicted().changes[0].lines)
    for line in predicted().changes[0].lines:
        assert f"    {line}\n" in text, "whole, however long it is"


def test_a_plan_says_what_is_held_what_it_costs_and_what_a_change_costs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    text = "\n".join([plan_as_text(plan(), TAKES, 1, HELD), *policy_as_lines(predicted(), TAKES)])
    for said in (
        "2 cases, 1 of them quarantined", "c0 does not count until 2030-01-01", "about (1 worker)",
        "Cost: about 25.00 EUR, prices version 7, at most 40.00", "guessed from a probe",
        "about 6.7 h instead of 2.2 h and 75.00 instead of 25.00 EUR", "(supporting)",
    ):  # fmt: skip
        assert said in text, said


def test_what_is_not_known_is_said_to_be_unknown_and_is_null_in_json() -> None:
    unknown = replace(ROW, seconds=None, cost=None, most=None)
    takes = replace(TAKES, arms=(replace(ROW, name="baseline", measured=True), unknown), run="r1")
    text = plan_as_text(plan(), takes, 2, HELD)
    assert "for a time that is unknown" in text
    assert "baseline: as measured in run r1; awq-int4-with-a-long-name: unknown until a run has measured it" in text
    assert "Cost: unknown until a run has measured the seconds that these prices charge, of awq-int4" in text
    body = json.loads(plan_as_json(plan(), takes, HELD, predicted(), ("a rule",)))
    assert (body["seconds"], body["cost"]["expected"], body["measured_in"]) == (None, None, "r1")
    assert [arm["measured_in"] for arm in body["arms"]] == ["r1", None]
    assert body["evalsets"][0]["quarantined"] == 1
    assert body["quarantine"]["notes"] == list(HELD.notes)
    assert body["not_foretold"] == ["a rule"]


def test_prompts_that_only_a_server_can_count_are_unknown_and_so_is_what_they_cost() -> None:
    row = replace(ROW, prompt_tokens=None, cost=None, most=None)
    takes = replace(TAKES, arms=(row,), prices=Prices(version="7", currency="EUR", prompt_token=1))
    text = plan_as_text(plan(), takes, 1, HELD)
    assert re.search(r"awq-int4-with-a-long-name +gptq int4 g128 act-order +1 +unknown +7,654,321", text)
    assert "Cost: unknown as servers alone can count the tokens of their prompts, of awq-int4" in text
    assert json.loads(plan_as_json(plan(), takes, HELD, None))["arms"][0]["prompt_tokens"] is None


def test_faults_of_the_quarantine_are_said() -> None:
    held = replace(HELD, faults=("3 of 4 cases are quarantined, over 2%",))
    assert "nothing could be decided: 3 of 4 cases are quarantined" in plan_as_text(plan(), TAKES, 1, held)


def test_with_repeats_cases_are_questions_and_their_answers_are_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Plan, "repeats", 4)
    takes = replace(TAKES, arms=tuple(replace(row, cases=8) for row in TAKES.arms))
    text = plan_as_text(plan(), takes, 1, HELD)
    assert "4 answers to each case; they are one cluster" in text
    body = json.loads(plan_as_json(plan(), takes, HELD, predicted()))
    assert [(arm["cases"], arm["answers"]) for arm in body["arms"]] == [(2, 8), (2, 8)]
