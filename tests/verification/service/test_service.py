"""The rows that need no process of their own, on as little as shows that they can fail."""

from __future__ import annotations

from functools import partial

import pytest

from qualgate.store import database
from tests.verification.service import cut_log, migrations, scale


def test_a_simulated_cluster_that_loses_a_node_answers_everything_and_goes_on_with_it_once_it_is_back(monkeypatch):
    monkeypatch.setattr(scale, "AWAY", 60.0)
    found = scale.simulated(9_600, 2, seed=0)
    assert (found["units"], found["workers lost"]) == (9_600, 8)
    monkeypatch.setattr(scale, "AWAY", float("inf"))
    assert scale.simulated(9_600, 2, seed=0)["took, s"] > found["took, s"] + 30, "eight devices fewer to the end"


def test_a_log_cut_anywhere_keeps_what_was_acknowledged_and_a_decision_that_is_not_there_is_missed(monkeypatch):
    nothing = {"lost": 0, "doubled": 0, "otherwise": 0}
    assert cut_log.cut_log(seed=0, cuts=5) == nothing
    look = cut_log._look
    monkeypatch.setattr(cut_log, "_look", lambda cut, wanted, found: look(cut, [*wanted, "another"], found))
    assert cut_log.cut_log(seed=0, cuts=5) == nothing | {"lost": 5}


@pytest.mark.parametrize("revision", ["0001", "0006"])
def test_an_upgrade_that_is_killed_leaves_the_old_store_and_one_that_loses_a_row_is_found(
    tmp_path, monkeypatch, revision
):
    made = migrations._made(tmp_path, revision, cases=2)
    trial = partial(migrations._trial, kind="file", revision=revision, now=made, kills=1)
    found = trial(f"sqlite:///{tmp_path / 'a.db'}")
    assert (found["killed"], found["in between"], found["changed"]) == (1, 0, 0)
    upgrade = database.upgrade

    def losing(url: str) -> None:
        upgrade(url)
        with database.open_store(url) as store, store.write() as connection:
            connection.exec_driver_sql("UPDATE units SET text = 'x' WHERE unit_id = 1")

    monkeypatch.setattr(database, "upgrade", losing)
    assert trial(f"sqlite:///{tmp_path / 'b.db'}")["changed"] == 2, "its row, and its seal"
