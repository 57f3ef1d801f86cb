"""What recording a job asks a store."""

from __future__ import annotations

from sqlalchemy import event

from qualgate.store import runs
from qualgate.store.database import open_store
from tests.store.made import make_plan, make_results

SMALL = make_plan(cases=4, job_rows=8)


def test_a_jobs_units_are_found_by_their_names_and_not_by_reading_all_that_an_arm_has(tmp_path):
    asked = []
    with open_store(f"sqlite:///{tmp_path / 'q.db'}") as store:
        run_id = runs.begin(store, SMALL).run_id
        event.listen(store.engine, "before_cursor_execute", lambda *all: asked.append(all[2:4]))
        runs.record(store, run_id, *next(make_results(SMALL)))
        [found] = [one for one in asked if "units.case_hash" in one[0] and one[0].startswith("SELECT")]
        with store.read() as connection:
            told = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {found[0]}", found[1]).all()
    assert [row[3] for row in told if "case_id=?" not in row[3]] == []
