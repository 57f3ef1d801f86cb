"""One question under several names: in a run, from its store, with looks on the way."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.gate.early import decide_early, lay_out, order_of, seeded_order
from qualgate.gate.evidence.checks import examine
from qualgate.gate.evidence.duplicates import join
from qualgate.gate.verdict import decide_plain
from qualgate.pipeline.named_sets import asked_in_two_sets
from qualgate.records import Case, EarlyStop, Evalset, Plan, Policy, Rule, UnitKey
from qualgate.records.identity import case_hash, question_hash
from qualgate.store import runs
from qualgate.store.database import open_store
from tests.gate.planted import run
from tests.store.made import make_plan, make_run

CASES = 90
PER_SET = Rule(metric="exact_match", scope="evalset", max_drop=0.1)
POOLED = Rule(metric="exact_match", max_drop=0.05)


def test_a_question_is_what_is_asked_and_neither_its_name_nor_how_it_is_scored() -> None:
    case = {"id": "a", "prompt": "2 + 2?", "answer": "4", "max_new_tokens": 8}
    for change in ({"id": "b"}, {"cluster": "c"}, {"tags": ["t"]}, {"task": "sums"}, {"answer": "four"}):
        assert question_hash(case | change) == question_hash(case)
    for change in ({"prompt": "2 + 3?"}, {"tools": [{"name": "add"}]}, {"requests": [["2 + 2?", " 4"]]}):
        assert question_hash(case | change) != question_hash(case)
    assert question_hash({"id": "a"}) == question_hash({"id": "b"}) == ""


def test_clusters_are_joined_through_third_ones_and_by_nothing_that_is_not_known() -> None:
    asked = [*zip("abcbcdef", ("1", "2", "3", "3", "1", "", "", "4"), strict=True)]
    first = join(asked)
    assert [first(label) for label in "abcdef"] == [first("a")] * 3 + ["d", "e", "f"]
    assert first("a") in "abc"


def test_a_set_and_its_copy_under_other_ids_prove_no_more_than_the_set() -> None:
    """60 cases cannot prove a loss of 4 points absent; 120 independent ones can."""
    twice = run(n=60, metrics={"code": ("exact_match",), "copy": ("exact_match",)}, right=1.0)
    policy = Policy(rules=(replace(POOLED, max_drop=0.04),))
    (free,) = decide_plain(twice, policy)
    asked = {(name, f"{name}-{number}"): f"question {number}" for name in ("code", "copy") for number in range(60)}
    (joined,) = decide_plain(replace(twice, questions=asked), policy)
    assert (free.word, joined.word) == ("approve", "undecided")
    assert joined.comparisons[0].clusters == 60
    (found,) = examine(replace(twice, questions=asked))
    numbers = {name: [pair.cluster for pair in pairs] for name, pairs in found.pairs.items()}
    assert numbers["code"] == numbers["copy"]


def with_copy(policy: Policy) -> Plan:
    """A plan whose second evalset asks what the first asks, under other ids and with other references."""
    plan = make_plan(cases=CASES, wrong={"int8": 0.0}, families=("arithmetic", "json_extract"), policy=policy)
    first, second = plan.evalsets
    bodies = [
        {**case.body, "id": f"copy-{number:03d}", "answer": f"{case.body['answer']} "}
        for number, case in enumerate(first.cases)
    ]
    copy = replace(second, cases=tuple(Case(evalset=second.name, body=body) for body in bodies))
    renamed = {(case.evalset, case.id): other.body for case, other in zip(second.cases, copy.cases, strict=True)}

    def of_copy(prompt):
        if (body := renamed.get((prompt.key.evalset, prompt.key.case_id))) is None:
            return prompt
        key = UnitKey(prompt.key.arm, prompt.key.evalset, body["id"])
        return replace(prompt, key=key, case_hash=case_hash(body))

    jobs = tuple(replace(job, prompts=tuple(map(of_copy, job.prompts))) for job in plan.jobs)
    return replace(plan, evalsets=(first, copy), jobs=jobs)


def test_a_stored_run_counts_a_question_once_however_often_it_is_judged(tmp_path) -> None:
    plan = with_copy(Policy(rules=(POOLED, PER_SET)))
    with open_store(f"sqlite:///{tmp_path / 'qualgate.db'}") as store:
        evidence = runs.evidence(store, make_run(store, plan, {"int8": 0.0}))
    (verdict,) = decide_plain(evidence, plan.policy)
    assert [(c.n, c.clusters) for c in verdict.comparisons] == [(2 * CASES, CASES), (CASES, None), (CASES, None)]
    assert "90 questions stand in more than one evalset (arithmetic/" in asked_in_two_sets(plan)[0]
    assert asked_in_two_sets(replace(plan, evalsets=plan.evalsets[:1])) == ()


def test_early_looks_take_all_copies_of_a_question_at_once(tmp_path) -> None:
    plan = with_copy(Policy(rules=(POOLED,), stop=EarlyStop(seed=3)))
    cases = [case for item in plan.evalsets for case in item.cases]
    stop, _ = lay_out(plan.policy, cases)
    plan = replace(plan, policy=replace(plan.policy, stop=stop))
    with open_store(f"sqlite:///{tmp_path / 'qualgate.db'}") as store:
        evidence = runs.evidence(store, make_run(store, plan, {"int8": 0.0}))
    order, home = order_of(evidence, 3), {(case.evalset, case.id): case.question for case in cases}
    assert order == seeded_order(cases, 3)
    for cluster in order:
        assert (len(cluster), len({home[evalset, case] for evalset, case, _ in cluster})) == (2, 1)
    (verdict,) = decide_early(evidence, plan.policy)
    assert verdict.comparisons[0].method == "paired_betting/4", "decided by the looks' own test, not refused"
    assert "more than once" not in " ".join(verdict.reasons)


@pytest.mark.parametrize("cluster", [None, "page 7"])
def test_what_stands_once_keeps_its_place_in_the_order(cluster) -> None:
    """Runs without copies are laid out, and so identified, as they always were."""
    body = {"cluster": cluster} if cluster else {}
    sets = [
        Evalset(name=name, version="1", sha256="", metrics=("exact_match",), cases=tuple(
            Case(evalset=name, body={"id": f"{number}", "prompt": f"{name} {number}", **body}) for number in range(20)
        ))
        for name in ("a", "b")
    ]  # fmt: skip
    with_prompts = [case for item in sets for case in item.cases]
    without = [Case(evalset=case.evalset, body={"id": case.id, **body}) for case in with_prompts]
    assert seeded_order(with_prompts, 1) == seeded_order(without, 1)
