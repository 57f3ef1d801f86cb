"""Opening a store: new, old, newer, broken, missing. Always what was found and the next step. What is PostgreSQL's
alone is in `test_postgresql`."""

from __future__ import annotations

import os
import re
import sqlite3
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import text
from sqlalchemy.exc import OperationalError

from qualgate.errors import InfrastructureError, IntegrityError, StoreVersionError, UsageError
from qualgate.gate.verdict import decide_plain
from qualgate.store import database, decisions, postgresql, prune, queries, runs, sqlite
from qualgate.store.address import file_of
from qualgate.store.copy import copy_store
from qualgate.store.database import REVISIONS, Store, open_store, upgrade
from qualgate.store.prunings import EvidencePruned
from qualgate.store.queries.service import service_state
from qualgate.store.roles import apply_roles
from qualgate.store.schema import APPEND_ONLY
from tests.store.made import make_plan, make_results, make_run
from tests.store.test_lost_connections import a_decision, a_scoring, cut_at, cut_once_committed
from tests.store.test_postgresql import as_role


def set_revision(store, revision: str) -> None:
    with store.write() as connection:
        connection.execute(text("update alembic_version set version_num = :revision"), {"revision": revision})


def test_a_new_store_is_made_at_the_head_even_when_many_open_it_at_once(tmp_path):
    url = f"sqlite:///{tmp_path / 'new.db'}"

    def first_use(_: int) -> int:
        with open_store(url) as store:
            return queries.count_runs(store)

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(first_use, range(8))) == {0}
    assert "already at" in upgrade(url)


def test_a_file_that_two_turn_to_wal_at_once_is_waited_for(tmp_path):
    """Before 2026-11-25 one opener in about a hundred was told that another had been writing for 30 s."""
    file = tmp_path / "q.db"
    reader = sqlite3.connect(file, isolation_level=None)
    reader.execute("CREATE TABLE t (n INTEGER)")
    reader.execute("BEGIN")
    reader.execute("SELECT * FROM t").fetchall()  # a read lock: nobody turns the file to WAL beside it
    other = sqlite3.connect(file, timeout=0, check_same_thread=False)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(sqlite._write_ahead, other)
        with pytest.raises(TimeoutError):
            waiting.result(timeout=0.05)
        reader.execute("COMMIT")
        waiting.result(timeout=sqlite.BUSY_SECONDS)
    assert other.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def test_a_store_that_another_process_keeps_is_told_of_and_written_to_once_it_is_free(tmp_path, monkeypatch):
    file = tmp_path / "q.db"
    with open_store(f"sqlite:///{file}") as store:
        other = sqlite3.connect(file, isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        with monkeypatch.context() as patched:
            patched.setattr(sqlite, "BUSY_SECONDS", 0.05)
            with open_store(store.url) as hasty, pytest.raises(InfrastructureError, match="process has been writing"):
                _write_once(hasty)
        with ThreadPoolExecutor(1) as pool:
            written = pool.submit(_write_once, store)
            with pytest.raises(TimeoutError):
                written.result(timeout=0.05)
            other.execute("COMMIT")
            assert written.result(timeout=sqlite.BUSY_SECONDS) == sqlite.BUSY_SECONDS * 1000


def _write_once(store: Store) -> int:
    """How long its connection then waits for others, ms."""
    with store.write() as connection:
        return connection.exec_driver_sql("PRAGMA busy_timeout").scalar_one()


def test_a_newer_store_is_refused_with_the_way_out(store, url):
    set_revision(store, "0999")
    for attempt in (open_store, upgrade):
        with pytest.raises(StoreVersionError, match=rf"0999.*{REVISIONS[-1]}.*Upgrade qualgate: "):
            attempt(url)


def test_an_older_store_is_refused_with_the_command_that_upgrades_it(store, url, monkeypatch):
    monkeypatch.setattr(database, "REVISIONS", (*REVISIONS, "0999"))
    with pytest.raises(StoreVersionError, match=f"{REVISIONS[-1]}.*0999.*qualgate db upgrade --store {re.escape(url)}"):
        open_store(url)


def test_durability_is_not_left_to_defaults(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'q.db'}") as store, store.read() as connection:
        settings = {
            name: connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("journal_mode", "synchronous", "foreign_keys", "recursive_triggers")
        }
    assert settings == {"journal_mode": "wal", "synchronous": 2, "foreign_keys": 1, "recursive_triggers": 1}


def test_a_missing_store_is_made_only_when_asked_for(tmp_path):
    url = f"sqlite:///{tmp_path / 'none.db'}"
    with pytest.raises(UsageError, match="no store yet"):
        open_store(url, create=False)
    with pytest.raises(UsageError, match="no store to upgrade"):
        upgrade(url)
    assert list(tmp_path.iterdir()) == []


def test_an_empty_file_is_told_with_the_command_that_makes_a_store_of_it(tmp_path):
    (tmp_path / "new.db").touch()
    url = f"sqlite:///{tmp_path / 'new.db'}"
    with pytest.raises(UsageError, match=f"the file is empty. `qualgate db upgrade --store {url}` makes a store of it"):
        open_store(url, create=False)
    upgrade(url)
    open_store(url, create=False).close()


def test_of_a_missing_store_only_another_store_is_offered(tmp_path):
    (tmp_path / "qualgate.yaml").write_text("version: 1\n")
    with pytest.raises(UsageError, match=r"there is no store yet\. `qualgate run"):
        open_store(f"sqlite:///{tmp_path / 'qualgate.db'}", create=False)
    open_store(f"sqlite:///{tmp_path / 'qualgates.db'}").close()
    with pytest.raises(UsageError, match=r"there is no store yet; did you mean '.*/qualgates\.db'\? `qualgate run"):
        open_store(f"sqlite:///{tmp_path / 'qualgate.db'}", create=False)


@pytest.mark.parametrize(
    ("url", "error", "said"),
    [
        ("sqlite:////no/such/folder/x.db", UsageError, "does not exist"),
        ("sqlite://", UsageError, "a store is a file"),
        ("sqlite:///:memory:", UsageError, "a store is a file"),
        ("qualgate.db", UsageError, "sqlite:///qualgate.db"),
        ("mysql://host/db", UsageError, "not a store's URL"),
        ("mysql://me:secret@host/db", UsageError, "mysql:…@host/db"),
        ("postgresql+psycopg2://host/db", UsageError, "psycopg 3"),
        ("postgresql://host", UsageError, "postgresql://USER@HOST:PORT/DATABASE"),
        ("sqlite:////", UsageError, "is a folder, but a store is a file, such as sqlite:////qualgate.db"),
    ],
)
def test_a_url_that_cannot_be_a_store_is_refused(url, error, said):
    with pytest.raises(error, match=said):
        open_store(url)


def test_a_file_that_is_no_database_is_refused_untouched(tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("these are my notes, not a database\n" * 100)
    before = path.read_bytes()
    with pytest.raises(UsageError, match="not a database"):
        open_store(f"sqlite:///{path}")
    assert path.read_bytes() == before


def test_another_program_s_database_is_refused(tmp_path):
    with sqlite3.connect(tmp_path / "other.db") as connection:
        connection.execute("create table things (x)")
    with pytest.raises(UsageError, match="not a qualgate store"):
        open_store(f"sqlite:///{tmp_path / 'other.db'}")


def test_a_damaged_store_is_an_integrity_failure(tmp_path):
    with open_store(url := f"sqlite:///{tmp_path / 'q.db'}") as store:
        run_id = make_run(store, make_plan(cases=10))
        with store.write() as connection:
            page = connection.exec_driver_sql("select rootpage from sqlite_master where name = 'units'").scalar_one()
    path = file_of(url)
    data = bytearray(path.read_bytes())
    data[4096 * (page - 1) : 4096 * page] = os.urandom(4096)
    path.write_bytes(data)
    with pytest.raises(IntegrityError, match="damaged"), open_store(url) as store:
        runs.evidence(store, run_id)


def test_a_write_that_waits_too_long_says_so(store, url, monkeypatch):
    for kind in (sqlite, postgresql):
        monkeypatch.setattr(kind, "BUSY_SECONDS", 0.1)
    with (
        open_store(url) as other,
        store.write(),
        pytest.raises(InfrastructureError, match="another process has been writing"),
        other.write(),
    ):
        pass


def test_a_transaction_that_fails_leaves_nothing(store):
    def stopped_half_way() -> None:
        with store.write() as connection:
            connection.execute(text("insert into cases values ('x', '{}')"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        stopped_half_way()
    with store.read() as connection:
        assert connection.execute(text("select count(*) from cases")).scalar_one() == 0


def test_history_is_append_only_in_a_file(file):
    with open_store(file) as store, store.read() as connection:
        made = connection.execute(text("select tbl_name, sql from sqlite_master where type = 'trigger'")).all()
    assert {table for table, _ in made} == APPEND_ONLY
    for table in APPEND_ONLY:
        kinds = {sql.split(" BEFORE ")[1].split()[0] for name, sql in made if name == table}
        assert kinds == {"UPDATE", "DELETE"}


@pytest.mark.parametrize(
    "said",
    [
        "FATAL:  the database system is starting up",
        "FATAL:  the database system is not yet accepting connections",
        "FATAL:  sorry, too many clients already",
        "FATAL:  remaining connection slots are reserved for roles with the SUPERUSER attribute",
        "could not receive data from server: Connection reset by peer",
        "No route to host",
        "Network is unreachable",
    ],
)
def test_a_server_that_is_away_or_full_is_told_from_one_that_is_unwilling(said):
    refused = OperationalError(None, None, Exception(f'connection to server on socket "s" failed: {said}'))
    assert postgresql.is_lost(refused)
    refused = OperationalError(None, None, Exception('connection failed: FATAL:  role "ada" does not exist'))
    assert not postgresql.is_lost(refused)


def test_a_host_whose_name_is_not_found_is_a_server_that_is_away():
    with pytest.raises(postgresql.LostConnection, match=r"resolve host.*See that its server runs and can be reached"):
        open_store("postgresql://ada@nowhere.invalid/qualgate")


# ------------------------------------------------------------------------------------------------------- on a server


def test_a_run_on_a_server_loses_nothing_though_its_connections_are_cut(on_server, pg, no_pause):
    """What every change is held to; the whole contract, and what else is a server's, is held as proofs."""
    plan, store = make_plan(cases=2, wrong={"int8": 0.0}), on_server
    run_id = runs.begin(store, plan).run_id
    cut = cut_at(store, pg, "UPDATE units", times=3)
    for result, scored in make_results(plan):
        runs.record(store, run_id, result, scored)
    assert len(cut) == 3
    evidence = runs.evidence(store, run_id)
    runs.finish(store, run_id, decide_plain(evidence, plan.policy), complete=True)
    assert (evidence.integrity, queries.run_summary(store, run_id).status) == ((), "complete")
    with store.read() as connection:
        assert connection.execute(text("select distinct status, attempts from units")).all() == [("done", 1)]
    lost = cut_once_committed(store, pg)
    assert a_decision(store, run_id) == 1
    assert len(lost) == 1
    assert decisions.check_chain(store) != decisions.GENESIS
    assert a_scoring(store, run_id) == (1, 1)
    assert runs.evidence(store, run_id).integrity == ()
    with pytest.raises(IntegrityError, match="append-only"), store.write() as connection:
        connection.execute(text("update verdicts set word = 'approve'"))


def test_a_server_keeps_roles_locks_and_copies_as_a_file_does(on_server, pg, no_pause, file, tmp_path):
    plan, store = make_plan(cases=2, wrong={"int8": 0.0}), on_server
    old, _ = make_run(store, plan), make_run(store, plan)
    before = runs.evidence(store, old, answers=True)
    assert copy_store(store.url, file).broken == ()
    with open_store(file) as copied:
        assert runs.evidence(copied, old, answers=True) == before
    apply_roles(store.url)
    with open_store(as_role(pg, store.url, "writer")) as writer:
        with pytest.raises(UsageError, match="permission denied for table scores"):
            prune.prune_run(writer, old)
        with writer.sole("a run"), pytest.raises(InfrastructureError, match="this run or"), store.sole("a run"):
            pass
        prune.prune_run(store, old)
        with pytest.raises(EvidencePruned):
            runs.evidence(writer, old)
    assert service_state(store).runs == {"complete": 2}
