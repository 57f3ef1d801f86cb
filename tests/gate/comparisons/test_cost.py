"""Cost per accepted answer: what counts, what is paid for, and what is not known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.errors import Exit
from qualgate.gate.comparisons.acceptance import Terms
from qualgate.gate.comparisons.ledger import ledger
from qualgate.gate.verdict import decide_plain
from qualgate.records import Attempt, Policy, Prices, Rule, Slo, UnitEvidence, UnitKey
from tests.gate.four import alike, evidence, with_units

TOKENS = Prices(version="1", currency="EUR", prompt_token=0.001, output_token=0.01)
COST = Rule(metric="cost_per_accepted_answer", max_ratio=0.9)
POLICY = Policy(rules=(Rule(metric="exact_match", max_drop=0.05), COST), prices=replace(TOKENS, device_second=1.0))
SECONDS = {"baseline": 10.0, "int4": 8.0, "drafted": 10.0, "int4+drafted": 13.0}


def unit(number: int = 0, **changes) -> UnitEvidence:
    fields = {
        "key": UnitKey("int4", "code", str(number)), "case_hash": "h", "status": "done", "finished": True, "tokens": 20,
        "values": {"exact_match": 1.0, "latency.ttft": 0.2, "latency.tpot": 0.02, "latency.e2e": 1.0},
        "attempts": (Attempt(outcome="done", prompt_tokens=100, output_tokens=20, seconds=1.0),),
    }  # fmt: skip
    return UnitEvidence(**(fields | changes))


def terms(prices: Prices | None = TOKENS, slo: Slo = Slo(), corrected=None, asked: bool = False) -> Terms:  # noqa: B008
    return Terms(prices=prices, slo=slo, metrics={"code": ("exact_match",)}, corrected=corrected, feedback_asked=asked)


def test_every_attempt_is_paid_for_and_only_accepted_answers_count():
    failed = Attempt(outcome="failed", cause="timeout", prompt_tokens=100, output_tokens=5)
    stopped = Attempt(outcome="cancelled", cause="guard", prompt_tokens=100, output_tokens=0)
    done = unit().attempts[0]
    units = [
        unit(0),
        unit(1, attempts=(failed, stopped, done)),
        unit(2, values={"exact_match": 0.0}),
        unit(3, finished=False),
    ]
    found = ledger("int4", units, terms()).service
    # 4 x (100 prompt + 20 output) + 100 + 5 + 100 tokens, over the two that were right and finished
    assert found.cost == pytest.approx(4 * (0.1 + 0.2) + 0.1 + 0.05 + 0.1)
    assert found.accepted == 2
    assert found.per_accepted == pytest.approx(found.cost / 2)
    assert found.attempts == 6
    assert found.retries == {"guard": 0.25, "timeout": 0.25}
    assert found.refused == {"not finished": 1, "wrong": 1}


def test_a_late_answer_is_not_accepted_and_one_token_has_no_pace():
    units = [unit(0), unit(1, values=unit().values | {"latency.ttft": 0.6}), unit(2, tokens=1)]
    units[2].values["latency.tpot"] = None
    found = ledger("int4", units, terms(slo=Slo(ttft=0.5, tpot=0.05))).service
    assert (found.accepted, found.refused, found.within_slo) == (2, {"outside the SLO": 1}, pytest.approx(2 / 3))


def test_corrections_are_known_for_those_answers_that_someone_spoke_of():
    units = [unit(number) for number in range(4)]
    found = ledger("int4", units, terms(corrected={units[0].key: True, units[1].key: False}, asked=True)).service
    assert (found.accepted, found.correction_rate, found.feedback) == (1, 0.5, 2)
    assert (found.refused, found.cost, found.per_accepted) == ({"corrected": 1}, pytest.approx(1.2), pytest.approx(0.6))
    nobody = ledger("int4", units, terms(corrected={}, asked=True)).service
    assert (nobody.accepted, nobody.per_accepted, nobody.correction_rate, nobody.feedback) == (None, None, None, 0)
    assert "no user was heard" in nobody.unavailable[0]


@pytest.mark.parametrize(
    ("changed", "said", "why"),
    [
        ({"attempts": ()}, {}, "not recorded"),
        ({"attempts": (Attempt(outcome="failed"), *unit().attempts)}, {}, "not recorded"),
        ({}, {"prices": None}, "no price table"),
        ({}, {"prices": replace(TOKENS, device_second=1.0), "slo": Slo(e2e=0.5)}, ""),
        (
            {"attempts": (replace(unit().attempts[0], seconds=0.0),)},
            {"prices": replace(TOKENS, device_second=1.0)},
            "not recorded",
        ),
        ({"finished": None}, {}, "finished was not recorded"),
        ({"values": {"exact_match": None}}, {}, "no scorer could say"),
        ({"values": {"exact_match": 1.0}}, {"slo": Slo(ttft=1.0)}, "no time was recorded"),
        ({}, {"asked": True}, "feedback file"),
    ],
)
def test_what_is_not_recorded_is_unavailable_and_never_zero(changed, said, why):
    found = ledger("int4", [unit(0), unit(1, **changed)], terms(**said))
    assert any(why in reason for reason in found.unavailable) if why else not found.unavailable
    assert found.service.per_accepted is None  # the last but "": nothing was accepted within the SLO


def judged(given, policy=POLICY):
    return {verdict.variant: verdict for verdict in decide_plain(given, policy)}


def cost_of(verdict):
    return next(one for one in verdict.comparisons if one.metric == "cost_per_accepted_answer")


def test_a_rule_on_cost_is_proven_broken_or_open_with_bounds_of_the_ratio():
    found = judged(evidence(alike(200), SECONDS))
    assert [found[name].word for name in ("int4", "drafted", "int4+drafted")] == ["approve", "block", "block"]
    ratio = cost_of(found["int4"])
    truth = (8 * 1.3 + 0.21) / (10 * 1.3 + 0.21)  # mean seconds of an answer and its tokens
    assert ratio.variant / ratio.baseline == pytest.approx(truth, rel=0.01)
    assert ratio.lower < truth < ratio.upper < 0.9
    assert [one.arm for one in found["int4"].services] == ["baseline", "int4"]


def test_a_variant_of_which_nothing_is_accepted_breaks_the_rule():
    given = with_units(evidence(alike(200), SECONDS), "int4", lambda u: replace(u, finished=False, truncated=True))
    found = judged(given)["int4"]
    assert (cost_of(found).status, cost_of(found).variant) == ("broken", None)
    assert any("none of 200 answers was accepted" in reason for reason in found.reasons)
    given = with_units(evidence(alike(200), SECONDS), "baseline", lambda u: replace(u, finished=False))
    assert cost_of(judged(given)["int4"]).status == "undecided", "of the baseline it decides nothing"


def test_an_unrecorded_attempt_leaves_a_rule_on_cost_undecided():
    lost = Attempt(outcome="failed", cause="infrastructure")
    given = evidence(alike(200), SECONDS)
    given = with_units(
        given, "int4", lambda u: replace(u, attempts=(lost, *u.attempts)) if u.key.case_id == "c-0003" else u
    )
    found = judged(given)["int4"]
    assert (found.exit, cost_of(found).status) == (Exit.UNDECIDED, "undecided")
    assert "unavailable" in found.reasons[0]


def heard(given, **shares):
    """Feedback on the first share of each arm's cases; every fifth of the baseline's answers was corrected."""
    return replace(
        given,
        corrected={
            unit.key: arm.name == "baseline" and index % 5 == 0
            for arm in (given.baseline, *given.variants)
            for index, unit in enumerate(arm.units)
            if index < shares.get(arm.name, 1.0) * len(arm.units)
        },
    )


@pytest.mark.parametrize(
    ("shares", "status", "why"),
    [
        ({}, "proven", "times the baseline's"),
        ({"baseline": 0.95, "int4": 0.95}, "proven", "times the baseline's"),
        ({"int4": 0.0}, "undecided", "no user was heard on any of 400 answers"),
        ({"int4": 0.5}, "undecided", "400 of baseline, 200 of variant"),
        ({"baseline": 0.04, "int4": 0.04}, "undecided", "16 independent cases are too few"),
    ],
)
def test_arms_are_compared_over_answers_that_users_were_heard_on_in_both(shares, status, why):
    """The baseline is corrected and as dear as int4: who is not heard on int4 must not take that for praise."""
    given = heard(evidence(alike(400, 1.0), SECONDS | {"int4": 10.0}), **shares)
    found = cost_of(judged(given, replace(POLICY, feedback="f" * 64))["int4"])
    assert found.status == status
    assert why in found.reason
    if status == "proven":
        assert found.variant / found.baseline == pytest.approx(0.8, rel=0.01)
        assert found.n == 400 * shares.get("int4", 1.0)


def in_batches(given, rows):
    for arm in (given.baseline, *given.variants):
        given = with_units(given, arm.name, lambda u: replace(u, job=int(u.key.case_id[2:]) // rows))
    return given


@pytest.mark.parametrize("rule", [COST, Rule(metric="latency.e2e", max_ratio=1.5), Rule(metric="goodput", min=0.5)])
def test_times_of_few_batches_or_of_unknown_ones_decide_nothing(rule):
    policy = replace(POLICY, rules=(POLICY.rules[0], rule), slo=Slo(e2e=100.0))
    few = in_batches(evidence(alike(400, 1.0), SECONDS), 32)
    unknown = with_units(evidence(alike(400, 1.0), SECONDS), "int4", lambda u: replace(u, job=None))
    for given, why in ((few, "13 groups of batches"), (unknown, "was not recorded for 400 of ")):
        found = judged(given, policy)["int4"].comparisons[-1]
        assert (found.status, found.p_broken) == ("undecided", None)
        assert why in found.reason
