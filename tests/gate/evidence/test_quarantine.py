"""Cases that do not count until a day, and evidence too old to decide. The day is an input."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.gate.evidence.quarantine import hold
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import plan_policy
from qualgate.gate.verdict import decide_plain
from qualgate.records import Policy, Quarantine, Rule
from qualgate.store import plain
from tests.gate.planted import of, run, with_each, with_units

NOW = "2026-11-21T10:00:00Z"
RULES = (Rule(metric="exact_match", max_drop=0.1),)


def entry(number: int, expires: str = "2026-12-01") -> Quarantine:
    return Quarantine(case=f"code-{number}", owner="ana", expires=expires, reason="the reference is wrong")


def judged(evidence, *entries: Quarantine, now: str = NOW, **settings):
    (verdict,) = decide_plain(evidence, Policy(rules=RULES, quarantine=entries, **settings), now)
    return verdict


def test_a_quarantined_case_does_not_count_and_every_verdict_names_it():
    verdict = judged(run(), entry(3), entry(5))
    assert (verdict.word, verdict.comparisons[0].n) == ("approve", 238)
    assert "code-3 does not count until 2026-12-01: the reference is wrong (ana)" in verdict.reasons
    broken = with_units(run(), "int4", lambda us: us[1:])
    assert judged(broken, entry(0)).exit == 13, "it is run and checked"
    assert "code-777: quarantined, and no case of this run" in judged(run(), entry(777)).reasons


@pytest.mark.parametrize("now", ["2026-12-01T00:00:00Z", "2027-01-01T00:00:00Z", ""])
def test_on_its_day_and_where_the_day_is_not_told_the_case_counts_again(now):
    verdict = judged(run(), entry(3), now=now)
    assert verdict.comparisons[0].n == 240
    assert any("its quarantine ended on 2026-12-01, it counts (ana)" in reason for reason in verdict.reasons)


def test_over_two_per_cent_the_quarantine_decides_nothing():
    assert judged(run(), *map(entry, range(4))).exit == 0
    verdict = judged(run(), *map(entry, range(5)))
    assert (verdict.exit, verdict.reasons[0]) == (
        12, "5 of 240 cases are quarantined, over 2%: mend or drop some (code-0, code-1, code-2, …)"
    )  # fmt: skip
    assert judged(run(), *map(entry, range(4)), entry(9, "2026-11-21")).exit == 0, "one that ended takes no place"


def test_an_entry_that_names_an_evalset_holds_its_id_there_and_nowhere_else():
    def renamed(unit):
        return replace(unit, key=replace(unit.key, case_id=unit.key.case_id.replace("tools-", "code-")))

    evidence = with_each(run(), "both", renamed)
    evidence = of(evidence.baseline, *evidence.variants)
    both = judged(evidence, entry(3))
    assert both.comparisons[0].n == 238
    assert (
        "code-3 does not count until 2026-12-01: the reference is wrong (ana); it is a case of code, tools: `evalset` "
        "holds it in one"
    ) in both.reasons
    one = judged(evidence, replace(entry(3), evalset="tools"))
    assert one.comparisons[0].n == 239
    assert "tools/code-3 does not count until 2026-12-01: the reference is wrong (ana)" in one.reasons
    none = judged(evidence, replace(entry(3), evalset="tool"))
    assert none.comparisons[0].n == 240
    assert "tool/code-3: quarantined, and no case of this run" in none.reasons

    held = hold(Policy(rules=RULES, quarantine=(replace(entry(3), evalset="tools"),)), evidence.expected, NOW[:10])
    assert (held.of("tools"), held.of("code")) == ({"code-3"}, frozenset())


def test_a_label_whose_cases_are_all_in_quarantine_decides_nothing():
    evidence = run()
    labels = {(key.evalset, key.case_id): ("tag:rare",) * (key.case_id == "code-3") for key in evidence.expected}
    rare = Rule(metric="exact_match", max_drop=0.1, where="tag:rare")
    policy = Policy(rules=(*RULES, rare), quarantine=(entry(3),))
    (verdict,) = decide_plain(replace(evidence, labels=labels), policy, NOW)
    assert (verdict.exit, verdict.reasons[0]) == (12, "exact_match [tag:rare]: none of its cases counts")


def test_a_set_whose_cases_are_all_in_quarantine_decides_nothing_and_the_plan_says_so():
    metrics = {"code": ("exact_match",), "tiny": ("exact_match",)}
    evidence = run(metrics=metrics)
    kept = {"code", "tiny-3"}
    for side in ("baseline", "variant"):
        evidence = with_units(evidence, side, lambda us: (u for u in us if {u.key.evalset, u.key.case_id} & kept))
    evidence = of(evidence.baseline, *evidence.variants, metrics=metrics)
    held = replace(entry(3), case="tiny-3")
    verdict = judged(evidence, held)
    assert (verdict.exit, verdict.reasons[0]) == (12, "exact_match [pooled]: no pair of tiny was compared")

    sets = (
        PlannedSet(name="code", metrics=("exact_match",), cases=120),
        PlannedSet(name="tiny", metrics=("exact_match",), cases=0, quarantined=1),
    )
    found = plan_policy(sets, Policy(rules=RULES, quarantine=(held,)), draws=200)
    assert (found.approve, found.rules[0].approve) == (0.0, 0.0)
    assert found.rules[0].note == "no case of tiny counts"
    assert plan_policy(sets[:1], Policy(rules=RULES), draws=200).approve > 0.8


@pytest.mark.parametrize(
    ("made", "now", "code"),
    [
        ("2026-11-21T09:00:00Z", NOW, 0), ("2026-11-20T09:59:00Z", NOW, 12), ("2026-11-22T09:00:00Z", NOW, 12),
        ("", NOW, 12), ("2026-11-21T09:00:00Z", "", 12), ("yesterday", NOW, 12),
    ],
)  # fmt: skip
def test_evidence_beyond_max_age_or_of_unknown_age_is_undecided(made, now, code):
    evidence = replace(run(), made_at=made)
    assert judged(evidence, now=now, max_age=86400).exit == code
    assert judged(evidence, now=now).exit == 0, "without a max_age any age decides"


def test_a_policy_with_quarantine_is_stored_whole():
    policy = Policy(rules=RULES, quarantine=(entry(1), replace(entry(2), evalset="code")), max_age=60)
    assert plain.policy(plain.policy_to_json(policy)) == policy


@pytest.mark.parametrize(("lost", "word"), [(10, "approve"), (17, "review"), (60, "block")])
def test_a_quarantine_makes_no_approval_by_itself_but_asks_a_person(lost, word):
    given = run()
    right = [unit.key.case_id for unit in given.baseline.units if unit.values["exact_match"] == 1][:lost]
    wrong = {"exact_match": 0.0}
    given = with_each(given, "int4", lambda u: replace(u, values=u.values | wrong) if u.key.case_id in right else u)
    verdict = judged(given, *(replace(entry(0), case=case) for case in right[:4]))
    assert verdict.word == word
    assert ("proven only without the quarantined cases" in verdict.reasons[0]) == (word == "review")
    assert judged(given).word == {"approve": "approve", "review": "undecided", "block": "block"}[word]
