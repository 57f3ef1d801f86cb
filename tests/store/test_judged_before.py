"""Which earlier runs were looks at the list of this one, when it held less."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import update

from qualgate.errors import IntegrityError
from qualgate.gate.verdict import decide_plain
from qualgate.records import Case, EarlyStop, Plan
from qualgate.store import queries, runs
from qualgate.store.tables import arms
from tests.store.made import make_plan, make_results
from tests.store.tampering import tamper

WRONG = {"int8": 0.0, "int2-g32": 0.3}
WHOLE = make_plan(cases=13, wrong=WRONG)


def cut(plan: Plan, count: int, name: str = "") -> Plan:
    """The plan on the first cases of each set."""
    sets = tuple(replace(item, cases=item.cases[:count], sha256=f"{item.name} {count}") for item in plan.evalsets)
    left = {(item.name, case.id) for item in sets for case in item.cases}
    jobs = tuple(
        replace(job, prompts=tuple(one for one in job.prompts if (one.key.evalset, one.key.case_id) in left))
        for job in plan.jobs
    )
    return replace(plan, key=f"{plan.key} {count} {name}", evalsets=sets, jobs=jobs)


def ran(store, plan: Plan, *, judged: bool = True) -> str:
    record = runs.begin(store, plan)
    for result, scores in make_results(plan, WRONG):
        runs.record(store, record.run_id, replace(result, identity=plan.identities[result.arm]), scores)
    if judged:
        verdicts = decide_plain(runs.evidence(store, record.run_id), plan.policy)
        runs.finish(store, record.run_id, verdicts, complete=True)
    return record.run_id


def with_identity(plan: Plan, arm: str, **change: str) -> Plan:
    return replace(plan, identities=plan.identities | {arm: replace(plan.identities[arm], **change)})


def test_a_list_that_grew_was_judged_when_it_held_less(store):
    first = ran(store, cut(WHOLE, 8))
    second = ran(store, cut(WHOLE, 12))
    last = ran(store, WHOLE)
    assert queries.judged_before(store, first) == {}
    assert queries.judged_before(store, second) == dict.fromkeys(WRONG, 8)
    assert queries.judged_before(store, last) == dict.fromkeys(WRONG, 12)


def test_the_first_look_repeated_is_that_look_whatever_came_between(store):
    ran(store, cut(WHOLE, 8))
    ran(store, WHOLE)
    assert queries.judged_before(store, ran(store, cut(WHOLE, 8, "again"))) == {}


def test_looks_come_in_the_order_of_their_verdicts_and_not_in_which_runs_began(store):
    first = ran(store, WHOLE, judged=False)
    ran(store, cut(WHOLE, 8))
    assert queries.judged_before(store, first) == dict.fromkeys(WRONG, 8)


def test_a_list_that_shrank_was_judged_when_it_held_more(store):
    ran(store, WHOLE)
    assert queries.judged_before(store, ran(store, replace(WHOLE, key="again"))) == {}
    assert queries.judged_before(store, ran(store, cut(WHOLE, 8))) == dict.fromkeys(WRONG, 13)


def by(plan: Plan, stop: EarlyStop | None) -> Plan:
    return replace(plan, key=f"{plan.key} {stop}", policy=replace(plan.policy, stop=stop))


@pytest.mark.parametrize(("first", "later"), [(None, 1), (1, None), (1, 2)])
def test_the_same_list_by_another_test_or_in_another_order_is_another_look(store, first, later):
    one, other = (by(WHOLE, seed and EarlyStop(seed=seed, looks=(26,))) for seed in (first, later))
    ran(store, one)
    assert queries.judged_before(store, ran(store, replace(one, key="again"))) == {}
    assert queries.judged_before(store, ran(store, other)) == dict.fromkeys(WRONG, 13)


def asked(plan: Plan, times: int) -> Plan:
    """Each question so many times."""
    jobs = tuple(
        replace(job, prompts=tuple(replace(one, key=replace(one.key, repeat=repeat))
                                   for repeat in range(times) for one in job.prompts))
        for job in plan.jobs
    )  # fmt: skip
    return replace(plan, key=f"{plan.key} {times} times", jobs=jobs)


def test_more_answers_to_the_same_cases_are_a_later_look(store):
    ran(store, asked(WHOLE, 2))
    assert queries.judged_before(store, ran(store, asked(WHOLE, 4))) == dict.fromkeys(WRONG, 26), "of each set's 52"
    again = ran(store, replace(asked(WHOLE, 4), key="again"))
    assert queries.judged_before(store, again) == dict.fromkeys(WRONG, 26), "no look but the shorter one"


def changed(plan: Plan) -> Plan:
    """One case of every set has room for a longer answer now."""
    new = {
        (item.name, item.cases[3].id): Case(evalset=item.name, body=item.cases[3].body | {"max_new_tokens": 65})
        for item in plan.evalsets
    }
    sets = tuple(
        replace(item, cases=tuple(new.get((item.name, case.id), case) for case in item.cases)) for item in plan.evalsets
    )
    jobs = tuple(
        replace(
            job,
            prompts=tuple(
                replace(one, case_hash=new[key].hash) if (key := (one.key.evalset, one.key.case_id)) in new else one
                for one in job.prompts
            ),
        )
        for job in plan.jobs
    )
    return replace(plan, key="changed", evalsets=sets, jobs=jobs)


@pytest.mark.parametrize(("arm", "still"), [("int8", {"int2-g32": 8}), ("baseline", {})])
def test_another_model_was_not_judged_before(store, arm, still):
    for what in ("weights", "tokenizer", "template", "sampling"):
        ran(store, cut(with_identity(WHOLE, arm, **{what: "0" * 64}), 8, what))
    assert queries.judged_before(store, ran(store, WHOLE)) == still


def test_another_engine_gives_the_same_answers_and_its_look_counts(store):
    ran(store, cut(with_identity(WHOLE, "int8", engine="qualgate 0.0.9"), 8))
    assert queries.judged_before(store, ran(store, WHOLE)) == dict.fromkeys(WRONG, 8)


def test_a_variant_is_known_by_what_it_is_and_not_by_its_name(store):
    ids = WHOLE.identities
    ran(store, cut(replace(WHOLE, identities=ids | {"int8": ids["int2-g32"], "int2-g32": ids["int8"]}), 8))
    assert queries.judged_before(store, ran(store, WHOLE)) == dict.fromkeys(WRONG, 8)


def test_a_list_of_which_a_case_changed_is_another_list(store):
    ran(store, changed(cut(WHOLE, 8)))
    assert queries.judged_before(store, ran(store, WHOLE)) == {}


def test_of_a_run_whose_arms_cannot_be_read_nobody_knows_what_was_judged(store):
    first, last = ran(store, cut(WHOLE, 8)), ran(store, WHOLE)
    with store.write() as connection:
        connection.execute(update(arms).where(arms.c.run_id == first, arms.c.name == "int8").values(planned_json="{"))
    with pytest.raises(IntegrityError, match=f"'int8' in run {first} is not what was recorded"):
        queries.judged_before(store, last)


@pytest.mark.parametrize("table", ["evalsets", "arms"])
def test_a_run_that_lost_its_sets_or_arms_is_for_the_seals_to_tell(store, table):
    first, last = ran(store, cut(WHOLE, 8)), ran(store, WHOLE)
    for run_id in (first, last):
        tamper(store, f"delete from {table} where run_id = :run_id", run_id=run_id)
        assert queries.judged_before(store, last) == {}


def test_what_was_not_judged_was_no_look(store):
    ran(store, cut(WHOLE, 8), judged=False)
    broken = runs.begin(store, cut(WHOLE, 9))
    runs.finish(store, broken.run_id, decide_plain(runs.evidence(store, broken.run_id), WHOLE.policy), complete=False)
    assert queries.judged_before(store, ran(store, WHOLE)) == {}
