"""From revision 0021 on a run's units are counted, by arm, status and kernel, without a look at an answer."""

from __future__ import annotations

import sqlite3

import pytest
from sqlalchemy import event

from qualgate.store import queries
from qualgate.store.database import REVISIONS, open_store, upgrade
from tests.migrations.older import narrow_index_of_0021
from tests.store.made import make_plan, make_run


@pytest.fixture
def upgraded(tmp_path):
    """A store that was of revision 0020, its run, and that run's summary as it was then."""
    url = f"sqlite:///{tmp_path / 'qualgate.db'}"
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=3))
    with sqlite3.connect(tmp_path / "qualgate.db") as connection:
        connection.execute("update units set kernel = 'cpu int4' where arm = 'int8' and repeat = 0")
    with open_store(url) as store:
        before = queries.run_summary(store, run_id)
    with sqlite3.connect(tmp_path / "qualgate.db") as connection:
        narrow_index_of_0021(connection)
        connection.execute("update alembic_version set version_num = '0020'")
    assert f"from revision 0020 to {REVISIONS[-1]}" in upgrade(url)
    with open_store(url) as store:
        yield store, run_id, before


def test_a_run_of_revision_0020_is_summed_up_as_before(upgraded):
    store, run_id, before = upgraded
    assert queries.run_summary(store, run_id) == before
    assert {arm.name: arm.kernels for arm in before.arms}["int8"] == ("cpu int4",)


def test_what_a_run_s_page_counts_is_read_from_indices_alone(upgraded):
    store, run_id, _ = upgraded
    asked = []
    event.listen(store.engine, "before_cursor_execute", lambda *of: asked.append((of[2], of[3])))
    queries.run_summary(store, run_id)
    of_units = [one for one in asked if "FROM units" in one[0] and "units.error" not in one[0]]
    assert len(of_units) == 3
    with store.read() as connection:
        for statement, values in of_units:
            steps = [row[3] for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values)]
            assert "USING COVERING INDEX" in steps[0], steps
