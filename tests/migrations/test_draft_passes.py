"""Draft steps of stores before revision 0020 tell no pass, and their seals hold."""

from __future__ import annotations

import sqlite3
from dataclasses import replace

from qualgate.store import database, runs
from qualgate.store.database import open_store, upgrade
from tests.drafts import with_drafts
from tests.migrations.older import drop_columns_of_0020
from tests.store.made import make_plan, make_results

NOTHING = {"pass_number": None, "sequences": None, "overlap": None}


def test_drafts_of_revision_0019_tell_no_pass_their_seals_hold_and_new_ones_tell_some(tmp_path):
    url = f"sqlite:///{tmp_path / 'qualgate.db'}"

    def drafted(plan, told):
        run_id = runs.begin(store, plan).run_id
        for result, scores in make_results(plan):
            result = with_drafts(result) if result.arm == "int8" else result
            steps = result.draft_steps if told else [replace(step, **NOTHING) for step in result.draft_steps]
            runs.record(store, run_id, replace(result, draft_steps=tuple(steps)), scores)
        return run_id, runs.evidence(store, run_id)

    with open_store(url) as store:
        run_id, before = drafted(make_plan(cases=3), told=False)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        drop_columns_of_0020(connection)
        connection.execute("update alembic_version set version_num = '0019'")
    assert f"from revision 0019 to {database.REVISIONS[-1]}" in upgrade(url)
    with open_store(url) as store:
        assert runs.evidence(store, run_id) == before
        assert before.integrity == ()
        new, found = drafted(make_plan(cases=3, seed=1), told=True)
        assert found.integrity == ()
    for column in NOTHING:
        with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
            unit = "(select min(unit_id) from draft_steps join units using (unit_id) where run_id = ?)"
            connection.execute(f"update draft_steps set {column} = 7 where step = 1 and unit_id = {unit}", (new,))
        with open_store(url) as store:
            assert runs.evidence(store, new).integrity, column
