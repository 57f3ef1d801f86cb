"""What is PostgreSQL's alone: a connection that is lost, a claim held across machines, roles, a server that is not as
it must be. A server's programs are needed; the whole contract of the other files holds here too, as a proof."""

from __future__ import annotations

import re
import shutil
import sys
from dataclasses import replace
from typing import get_args

import pytest
from sqlalchemy import text

from qualgate.errors import InfrastructureError, IntegrityError, QualgateError, StoreVersionError, UsageError
from qualgate.errors.extras import install_command
from qualgate.records import UnitKey
from qualgate.store import (
    database,
    decisions,
    labels,
    nights,
    postgresql,
    prune,
    queries,
    runs,
    scorings,
)
from qualgate.store.database import REVISIONS, migrations_folder, open_store, upgrade
from qualgate.store.health import health
from qualgate.store.planned import planned_rows, put_cases, put_planned
from qualgate.store.prunings import EvidencePruned
from qualgate.store.queries.service import service_state
from qualgate.store.roles import ROLES, apply_roles, roles_sql
from qualgate.store.schema import APPEND_ONLY, WRITTEN_ONCE, metadata
from qualgate.store.sealed import Kind, sealed_row, store_rows
from tests.postgresql import Server
from tests.store.made import make_plan, make_run

pytestmark = pytest.mark.proof
NEXT = '''"""A step that a later version might bring."""
from alembic import op

revision, down_revision = "{revision}", "{before}"


def upgrade():
    op.execute("alter table runs add column note text")
'''
SMALL = make_plan(cases=2, wrong={"int8": 0.0})


@pytest.fixture
def store(on_server):
    return on_server


@pytest.fixture
def url(on_server) -> str:
    return on_server.url


def test_a_new_database_is_brought_to_the_head_and_an_older_store_in_one_transaction(pg, tmp_path, monkeypatch):
    """In whatever language: there, a sorts before B. A report's order is that of bytes."""
    english = pg.new_database(None, "ENCODING UTF8 LOCALE_PROVIDER icu ICU_LOCALE 'en' LOCALE 'C.UTF-8'")
    with open_store(english) as store, store.write() as connection:
        connection.execute(text("insert into cases values ('a', '{}'), ('B', '{}')"))
        assert connection.scalars(text("select case_hash from cases order by case_hash")).all() == ["B", "a"]
        assert connection.scalars(text("select x from (values ('a'), ('B')) t (x) order by x")).all() == ["a", "B"]
    assert "already at" in upgrade(english)
    folder = shutil.copytree(migrations_folder(), tmp_path / "migrations")
    later = NEXT.format(revision="9.0.0", before=REVISIONS[-1])
    (folder / "versions" / "v9_0_0_next.py").write_text(later)
    monkeypatch.setattr(database, "migrations_folder", lambda: folder)
    monkeypatch.setattr(database, "REVISIONS", (*REVISIONS, "9.0.0"))
    with pytest.raises(StoreVersionError, match="qualgate db upgrade"):
        open_store(english)
    assert f"from revision {REVISIONS[-1]} to 9.0.0, in one transaction" in upgrade(english)


def test_columns_are_as_wide_as_a_file_s_and_sort_by_their_bytes(store):
    wrong = text(
        "select table_name, column_name from information_schema.columns where table_schema = 'public' and "
        "(data_type not in ('text', 'bigint', 'integer', 'double precision', 'bytea', 'boolean') "
        "or (data_type = 'text' and collation_name is distinct from 'C'))"
    )
    with store.read() as connection:
        assert connection.execute(wrong).all() == []


@pytest.mark.parametrize("table", sorted(APPEND_ONLY))
def test_history_is_append_only_whoever_asks(store, table):
    column = next(iter(metadata.tables[table].primary_key)).name
    for change in (f"update {table} set {column} = {column}", f"delete from {table}", f"truncate {table}"):
        for role in ("origin", "replica"):  # as a replication's, a session passes common triggers by
            both = f"set local session_replication_role = {role}; {change}"
            with pytest.raises(IntegrityError, match=f"{table} is append-only"), store.write() as connection:
                connection.exec_driver_sql(both)


def test_what_is_append_only_in_a_file_is_so_on_a_server(tmp_path, store):
    with open_store(f"sqlite:///{tmp_path / 'q.db'}") as file, file.read() as connection:
        named = "select distinct tbl_name from sqlite_master where type = 'trigger'"
        assert set(connection.scalars(text(named))) == APPEND_ONLY
    with store.read() as connection:
        named = "select distinct tgrelid::regclass::text from pg_trigger where not tgisinternal"
        assert set(connection.scalars(text(named))) == APPEND_ONLY
    assert set(metadata.tables) > APPEND_ONLY | WRITTEN_ONCE


# ------------------------------------------------------------------------------------------------------------ roles


def as_role(pg: Server, url: str, role: str) -> str:
    """The store's address for a person who has this role and no other."""
    person = f"{role}_{url.partition('?')[0].rpartition('/')[2]}"
    pg.execute(f"CREATE ROLE {person} LOGIN IN ROLE qualgate_{role}")
    return url.replace("postgres@", f"{person}@")


def test_runs_are_written_beside_each_other_one_run_by_one_process_and_what_is_no_runs_alone(url, monkeypatch):
    monkeypatch.setattr(postgresql, "BUSY_SECONDS", 0.05)
    with open_store(url) as one, open_store(url) as other:
        with one.write("a"), other.write("b"):
            pass
        for ours, theirs in (("a", "a"), ("", "b"), ("a", ""), ("", "")):
            with (
                one.write(ours),
                pytest.raises(InfrastructureError, match="another process has been writing"),
                other.write(theirs),
            ):
                pass


def test_a_run_begins_while_another_one_does(url, monkeypatch):
    monkeypatch.setattr(postgresql, "BUSY_SECONDS", 0.05)
    other = replace(SMALL, key="another policy, the same cases")
    with open_store(url) as store, open_store(url) as others:
        put_cases(store, new := planned_rows(SMALL), SMALL.key)
        with store.write(SMALL.key) as connection:
            put_planned(connection, new)
            assert not runs.begin(others, other).resumed
            with pytest.raises(InfrastructureError, match="another process has been writing"):
                runs.begin(others, SMALL)
        assert runs.begin(others, SMALL).resumed


def test_roles_can_what_they_are_for_and_rewrite_nothing(pg, url):
    with open_store(url) as store:
        run_id = make_run(store, SMALL)
        seen = queries.run_summary(store, run_id).verdict("int8").sha256
    assert [name for name, _ in apply_roles(url)] == [f"qualgate_{name}" for name in ROLES]
    apply_roles(url)  # again, as after an upgrade
    people = {role: open_store(as_role(pg, url, role)) for role in ROLES}

    def decide(role: str) -> None:
        decisions.append(
            people[role], run_id, "int8", decisions.Said(action="block", name="Ada", reason="no"), decisions.Seen(seen)
        )

    for opened in people.values():
        assert runs.evidence(opened, run_id).integrity == ()
    assert service_state(people["reader"]).runs == {"complete": 1}, "a scrape needs no more than reading"
    assert {role for role, opened in people.items() if health(opened).lacking} == {"reader", "approver"}
    assert make_run(people["writer"], make_plan(cases=1, wrong={"int8": 0.0}, seed=3)) != run_id
    for role in ("reader", "approver"):
        with pytest.raises(UsageError, match=r"permission denied.*qualgate db roles"):
            runs.begin(people[role], make_plan(cases=1))
    for role in ("reader", "writer"):
        with pytest.raises(UsageError, match="permission denied for table decisions"):
            decide(role)
    decide("approver")
    answer = UnitKey("int8", "arithmetic", "arithmetic-0000")
    for role in ("writer", "approver"):
        label = labels.set_label(people[role], run_id, answer, "flaky", name=role)
        assert all(labels.labels(opened) == (label,) for opened in people.values())
    with pytest.raises(UsageError, match="permission denied for table sealed"):
        labels.set_label(people["reader"], run_id, answer, "flaky", name="reader")
    for kind in set(get_args(Kind)) - {"claim", "label", "opening", "preference"}:
        row = sealed_row(kind, {"forged": True}, run_id=run_id)
        with pytest.raises(UsageError, match="row-level security"):
            store_rows(people["approver"], [row])
    changes = [f"delete from {table}" for table in metadata.tables]
    changes += [f"truncate {table}" for table in metadata.tables]
    sealed = [table for table in metadata.tables if table in APPEND_ONLY | WRITTEN_ONCE]
    changes += [f"update {table} set {next(iter(metadata.tables[table].c)).name} = null" for table in sealed]
    changes += [
        "drop table decisions",
        "alter table verdicts disable trigger all",
        "create table mine (x int)",
        "update alembic_version set version_num = '0001'",
        "set session_replication_role = replica",
    ]
    for opened in people.values():
        for change in changes:
            refused = "permission denied|must be owner"
            with pytest.raises(UsageError, match=refused), opened.write() as connection:
                connection.exec_driver_sql(change)
        opened.close()


def test_runs_go_on_while_one_is_scored_again_and_pruned(url, monkeypatch):
    with open_store(url) as store, open_store(url) as others:
        old, _ = make_run(store, SMALL), make_run(store, SMALL)
        last = scorings.read(store, old)
        again = {answer.unit_id: answer.scores for answer in last.answers}
        monkeypatch.setattr(postgresql, "BUSY_SECONDS", 0.05)
        with others.write("a run under way"):
            assert scorings.add(store, old, 0, again) == 1
        with others.write("a run under way"):
            assert prune.prune_run(store, old).nbytes > 0
        with pytest.raises(EvidencePruned):
            runs.evidence(store, old)


def test_a_writer_can_be_a_night(pg, url):
    night = nights.Night(nightly="n", gate="support", model="", due_at="2026-11-26", began_at="", finished_at="",
                         run_id=None, repeated=False, exit=0)  # fmt: skip
    open_store(url).close()
    apply_roles(url)
    with open_store(as_role(pg, url, "writer")) as store:
        nights.add_night(store, night)
        nights.add_digests(store, "n", {"slack": {}}, 1)
        [sent] = nights.undelivered(store, "n")
        nights.note_attempt(store, sent, "")
        assert nights.undelivered(store, "n") == ()


def test_a_database_whose_transactions_are_of_another_kind_by_default_is_written_to_as_any(pg, url):
    """A snapshot that is older than the lock on writing would be of a time before the last writer's."""
    open_store(url).close()
    name = url.partition("?")[0].rpartition("/")[2]
    pg.execute(f"ALTER DATABASE {name} SET default_transaction_isolation = 'serializable'")
    with open_store(url) as store, store.write() as connection:
        assert connection.exec_driver_sql("SHOW transaction_isolation").scalar_one() == "read committed"


def test_roles_are_printed_for_whoever_may_make_them(pg, url):
    with pytest.raises(UsageError, match="lower-case letters"):
        roles_sql("x; drop table runs")
    with pytest.raises(UsageError, match="roles are a database's"):
        apply_roles("sqlite:///q.db")
    pg.execute("CREATE ROLE nobody_much LOGIN")
    with pytest.raises(UsageError, match="permission denied"):
        apply_roles(url.replace("postgres@", "nobody_much@"))


# -------------------------------------------------------------------------------------------- not as it has to be


def test_a_server_or_database_that_cannot_hold_a_store_is_refused_with_the_next_step(pg, url, monkeypatch):
    other = pg.new_database(None)
    pg.execute("create table things (x int)", other.partition("?")[0].rpartition("/")[2])
    latin = pg.new_database(None, "ENCODING LATIN1 LOCALE 'C'")
    for wrong, kind, said in (
        (url.replace("@/t", "@/no_such_"), UsageError, r"does not exist.*createdb"),
        (url.replace("postgres@", "nobody_here@"), UsageError, "Check host, user and database"),
        (url.replace(str(pg.folder), "/no/such/folder"), InfrastructureError, "See that its server runs"),
        (latin, UsageError, "LATIN1.*createdb --encoding=UTF8"),
        (other, UsageError, "not a qualgate store.*schema"),
    ):
        with pytest.raises(kind, match=said):
            open_store(wrong)
    with pytest.raises(UsageError, match="the database is empty") as told:
        open_store(empty := pg.new_database(None), create=False)
    assert f"`qualgate db upgrade --store {empty}` makes a store of it" in str(told.value)
    monkeypatch.setattr(postgresql, "OLDEST", 999)
    with pytest.raises(UsageError, match=r"is PostgreSQL \d+\.\d+, but 999 or newer"):
        open_store(url)


def test_a_store_without_its_driver_or_of_a_newer_program_names_what_to_install(store, url, monkeypatch):
    with store.write() as connection:
        connection.execute(text("update alembic_version set version_num = '0999'"))
    for attempt in (open_store, upgrade, database.check_store):
        with pytest.raises(StoreVersionError, match=r"0999.*Upgrade qualgate: "):
            attempt(url)
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(UsageError, match=re.escape(install_command("postgres"))):
        open_store(url)


def test_a_table_that_is_gone_is_damage(store):
    with store.write() as connection:
        connection.execute(text("drop table scores"))
    with pytest.raises(QualgateError, match=r"damaged.*Restore it from a backup"):
        runs.evidence(store, make_run(store, SMALL))
