"""Cases that no critical rule counts: nothing is approved, and the verdict says which rule would count them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.gate.decide import decide
from qualgate.records import Policy, Rule, Verdict
from tests.gate import planted

ANSWER, SCHEMA, NOTHING = ("answer",), ("schema",), ()
MATCH = Rule(metric="exact_match", max_drop=0.05)
VALID = Rule(metric="json.valid", max_drop=0.05)
FINISHED = Rule(metric="format.finished", max_drop=0.05)
SETS = {"code": ("exact_match", "format.finished"), "data": ("json.valid", "json.schema", "format.finished")}


def judged(*rules: Rule, held: dict | None = None, lost: float = 0.0, **policy) -> Verdict:
    """held: evalset → what each of its cases holds to be judged by; None: not known."""
    evidence = planted.run(metrics=SETS, lost=lost)
    cases = {(key.evalset, key.case_id) for key in evidence.expected}
    references = {case: held[case[0]] for case in cases if case[0] in held} if held else {}
    labels = {case: ("tag:hard",) if case[1] < f"{case[0]}-5" else () for case in cases}
    evidence = replace(evidence, references=references, labels=labels)
    return decide(evidence, Policy(rules=rules, **policy)).verdicts[0]


@pytest.mark.parametrize(
    ("rules", "held", "missed"),
    [
        ((MATCH, replace(MATCH, metric="json.schema")), None, ""),
        ((MATCH,), None, "120 of 240 cases are counted by no critical rule"),
        ((MATCH,), None, "{metric: json.schema, evalset: data, max_drop: 0.02} would count them"),
        ((MATCH, VALID), None, "120 of data (data-0, data-1, data-10, …): {metric: json.schema,"),
        ((MATCH, VALID), {"code": ANSWER, "data": SCHEMA}, "{metric: json.schema, evalset: data,"),
        ((MATCH, VALID), {"code": ANSWER, "data": NOTHING}, ""),
        ((MATCH, FINISHED), {"code": ANSWER, "data": NOTHING}, ""),
        ((FINISHED,), {"code": ANSWER, "data": NOTHING}, "120 of code"),
        ((MATCH,), {"code": ANSWER, "data": NOTHING}, "{metric: format.nonempty, evalset: data, max_drop: 0.02}"),
        ((MATCH, VALID), {"code": ANSWER, "data": ANSWER}, "score the set by exact_match or contains or pattern, and"),
        ((MATCH, replace(MATCH, metric="json.schema", tier="supporting")), None, "120 of data"),
        ((replace(MATCH, where="tag:hard"), replace(MATCH, metric="json.schema")), None, "of code"),
    ],
)
def test_every_case_is_counted_by_a_rule_that_reads_what_it_holds_or_nothing_is_approved(rules, held, missed):
    verdict = judged(*rules, held=held)
    assert (verdict.exit, missed in verdict.reasons[0]) == (12 if missed else 0, True), verdict.reasons


def test_a_policy_that_allows_uncounted_cases_says_so_first():
    verdict = judged(MATCH, uncounted="allow")
    assert (verdict.word, "(allowed by `gate: {uncounted: allow}`)" in verdict.reasons[0]) == ("approve", True)


def test_a_loss_that_is_proven_blocks_whatever_is_not_counted():
    verdict = judged(MATCH, lost=0.3)
    assert (verdict.exit, "120 of 240 cases are counted by no critical rule" in verdict.reasons[-1]) == (10, True)


@pytest.mark.parametrize("scope", ["tag:hard", "task"])
def test_cases_without_a_label_are_a_slice_of_their_own(scope):
    evidence = planted.run(metrics={"code": ("exact_match",)}, lost=0.3)
    keys = {(key.evalset, key.case_id) for key in evidence.expected}
    labels = {at: ("task:a", "tag:hard") if at[1] == "code-1" else () for at in keys}
    verdict = decide(replace(evidence, labels=labels), Policy(rules=(replace(MATCH, scope=scope),))).verdicts[0]
    assert {one.slice: one.n for one in verdict.comparisons if one.slice.startswith("no ")} == {f"no {scope}": 119}
    assert verdict.exit == 10


def test_a_person_is_not_asked_to_sign_for_cases_that_nobody_counts():
    assert judged(MATCH, review="always").exit == 12
