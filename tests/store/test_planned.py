"""A plan as the rows of a run: what two that begin it at once come to."""

from __future__ import annotations

from qualgate.store import runs
from qualgate.store.planned import planned_rows
from tests.store.made import make_plan


def test_of_two_that_begin_a_plan_at_once_the_second_goes_on_with_the_first_ones_run(store, monkeypatch):
    plan, first = make_plan(cases=2), list[runs.RunRecord]()

    def overtaken(given):
        monkeypatch.setattr(runs, "planned_rows", planned_rows)
        first.append(runs.begin(store, given))
        return planned_rows(given)

    monkeypatch.setattr(runs, "planned_rows", overtaken)
    second = runs.begin(store, plan)
    assert not first[0].resumed
    assert second.resumed
    assert second.run_id == first[0].run_id
    assert len(runs.evidence(store, second.run_id).expected) == len(plan.expected)


def test_a_units_row_names_its_case_and_its_cluster():
    plan = make_plan(cases=2, families=("arithmetic",))
    rows = planned_rows(plan)
    assert [row[1:5] for row in rows.units] == [
        (key.arm, key.evalset, key.case_id, key.repeat) for key in plan.expected
    ]
    assert {row[5] for row in rows.units} == set(rows.cases) == {case.hash for case in plan.evalsets[0].cases}
    assert {row[0] for row in rows.units} == {rows.run["run_id"]}
    assert {row[7:] for row in rows.units} == {("pending", 0, "")}
