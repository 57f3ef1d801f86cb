"""Which cases a trial asks."""

from __future__ import annotations

from dataclasses import replace

from qualgate.pipeline.few_cases import choose_cases
from qualgate.records import Case, Evalset, Policy, Trial

CASES = tuple(
    Case(
        evalset="ours",
        body={"id": f"c{number}", "prompt": f"ask {number}", "max_new_tokens": 4, "cluster": f"k{number // 3}"},
    )
    for number in range(30)
)
OURS = Evalset(name="ours", version="1", sha256="a" * 64, metrics=("exact_match",), cases=CASES)
POLICY = Policy(rules=(), trial=Trial(limit=7))


def test_a_trial_asks_whole_clusters_of_a_seeded_order():
    policy, (asked,) = choose_cases(POLICY, (OURS,), seed=1)
    chosen = [case.body["cluster"] for case in asked.cases]
    assert {chosen.count(one) for one in chosen} == {3}
    assert len(chosen) == 9, "the cluster in which the seventh falls is taken whole"
    assert (policy.trial.asked, policy.decides_nothing) == ((9, 30), "trial: 9 of 30 cases")
    assert choose_cases(POLICY, (OURS,), seed=1) == (policy, (asked,))
    assert choose_cases(POLICY, (OURS,), seed=2)[1] != (asked,)


def test_every_set_is_tried_and_a_run_that_is_no_trial_asks_all():
    other = replace(OURS, name="other", cases=tuple(Case(evalset="other", body=case.body) for case in CASES[:2]))
    _, (one, two) = choose_cases(POLICY, (OURS, other), seed=0)
    assert (len(one.cases), len(two.cases)) == (9, 2)
    assert choose_cases(Policy(rules=()), (OURS, other), seed=0) == (Policy(rules=()), (OURS, other))
