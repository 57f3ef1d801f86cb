"""A trial in the store: nobody who means a run gets one, and nobody decides about one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.errors import UsageError
from qualgate.gate.decide import decide
from qualgate.records import Policy, Rule, Trial
from qualgate.store import decisions, plain, queries, runs
from tests.store.made import RULES, WRONG, make_plan, make_results, make_run

TRIED = Policy(rules=RULES, trial=Trial(limit=4, asked=(12, 36), variants=(4, 4)))


def tried(store, **others) -> str:
    """A trial of four cases of each set, complete and judged."""
    plan = make_plan(cases=4, policy=replace(TRIED, **others), seed=0)
    record = runs.begin(store, plan)
    for result, scores in make_results(plan):
        runs.record(store, record.run_id, result, scores)
    decided = decide(runs.evidence(store, record.run_id), plan.policy)
    assert (decided.exit, {one.exit for one in decided.verdicts}) == (12, {12})
    runs.finish(store, record.run_id, decided.verdicts, complete=True)
    return record.run_id


def test_a_trial_is_never_the_newest_run_nor_one_that_was_judged_before(store):
    arms, sets = ["baseline", *WRONG], ["tool_calls", "json_extract", "arithmetic"]
    trial = tried(store)
    assert queries.latest_run_of(store, arms, sets) is None
    with pytest.raises(UsageError, match=f"holds only trials.*--run {trial}"):
        queries.latest_run(store)
    whole = make_run(store, make_plan(cases=12))
    newer = tried(store)
    assert queries.latest_run(store) == queries.latest_run_of(store, arms, sets) == whole
    assert queries.judged_before(store, whole) == {}, "of a trial's cases, which are among the run's"
    assert {line.run_id for line in queries.queue(store)} == {whole}
    assert queries.count_queue(store) == len(WRONG)
    listed = {line.run_id: line.trial for line in queries.list_runs(store)}
    assert listed == {trial: True, whole: False, newer: True}


@pytest.mark.parametrize("action", ["approve", "block"])
def test_nobody_decides_about_a_trial(store, action):
    trial = tried(store)
    verdict = queries.run_summary(store, trial).verdicts[0]
    with pytest.raises(UsageError, match="is a trial: 12 of 36 cases"):
        decisions.append(
            store,
            trial,
            verdict.verdict.variant,
            decisions.Said(action=action, name="ana", reason="it looks fine"),
            decisions.Seen(verdict.sha256),
        )
    assert queries.list_decisions(store) == ()


def test_texts_in_a_policy_make_no_trial_of_a_run(store):
    said = '"trial":{"limit":1}'
    hostile = Policy(
        rules=(*RULES, Rule(metric="exact_match", max_drop=0.15, where=f"tag:{said}", tier="advisory")), nel=""
    )
    assert said not in plain.policy_to_json(hostile)
    run_id = make_run(store, make_plan(cases=4, policy=replace(hostile, feedback=said)))
    assert queries.latest_run(store) == run_id


def test_a_trial_is_resumed_as_the_trial_that_it_is(store):
    plan = make_plan(cases=4, policy=TRIED)
    first = runs.begin(store, plan)
    again = runs.begin(store, plan)
    assert (again.run_id, again.resumed) == (first.run_id, True)
    assert runs.evidence(store, again.run_id).decides_nothing == "trial: 12 of 36 cases"


def test_taking_the_mark_off_a_trial_breaks_its_seal(store):
    trial = tried(store)
    with store.write() as connection:
        connection.exec_driver_sql("update runs set policy_json = replace(policy_json, '\"trial\":{', '\"tried\":{')")
    assert decide(runs.evidence(store, trial), TRIED).exit == 14
