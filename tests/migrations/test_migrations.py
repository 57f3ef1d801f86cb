"""The migrations end where the tables are, and never lose data on the way."""

from __future__ import annotations

import shutil
import sqlite3

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from qualgate.errors import StoreVersionError
from qualgate.gate.verdict import decide_plain
from qualgate.store import database, queries, runs
from qualgate.store.database import migrations_folder, open_store, upgrade
from qualgate.store.schema import metadata
from tests.store.made import make_plan, make_results

KNOWN = database.REVISIONS  # of this version, oldest first
LAST = KNOWN[-1]
AFTER = "9.0.0"
NEXT = f'''"""A step that a later version might bring."""
import sqlalchemy as sa
from alembic import op

revision = "{AFTER}"
down_revision = "{LAST}"


def upgrade():
    op.add_column("runs", sa.Column("note", sa.Text()))
'''
PLAN = make_plan(cases=3)


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'qualgate.db'}"


@pytest.fixture
def next_version(tmp_path, monkeypatch):
    """Make the program one migration later; returns the file of that migration."""
    folder = shutil.copytree(migrations_folder(), tmp_path / "migrations")
    (folder / "versions" / f"{AFTER}_next.py").write_text(NEXT)
    monkeypatch.setattr(database, "migrations_folder", lambda: folder)
    monkeypatch.setattr(database, "REVISIONS", (*KNOWN, AFTER))
    return folder / "versions" / f"{AFTER}_next.py"


def scripts() -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    return config


def of_revision(url: str, query: str) -> list[tuple]:
    """Read past the program, which opens no store of another revision."""
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        return connection.execute(query).fetchall()


def test_the_program_knows_exactly_the_migrations_there_are():
    found = ScriptDirectory.from_config(scripts())
    assert tuple(reversed([script.revision for script in found.walk_revisions()])) == KNOWN
    assert len(found.get_heads()) == 1


def test_the_migrations_make_the_tables_of_the_program(url):
    with open_store(url) as store, store.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata) == []
        made = dict(connection.execute(text("select name, sql from sqlite_master where type = 'table'")).all())
    for table in metadata.tables.values():
        for constraint in table.constraints:
            named = constraint.name
            assert f"CONSTRAINT {named} " in made[table.name], f"{named}: an unnamed constraint can never be dropped"


def recorded(url: str) -> str:
    """A run in a new store; its id."""
    with open_store(url) as store:
        run_id = runs.begin(store, PLAN).run_id
        for result, scores in make_results(PLAN):
            runs.record(store, run_id, result, scores)
        runs.finish(store, run_id, decide_plain(runs.evidence(store, run_id), PLAN.policy), complete=True)
    return run_id


@pytest.mark.parametrize("asked", [open_store, upgrade], ids=["opened", "upgraded"])
def test_a_store_of_version_0_1_is_refused_by_name_and_stays_as_it_is(url, tmp_path, asked):
    with sqlite3.connect(tmp_path / "qualgate.db") as old:
        old.execute("pragma journal_mode = wal")  # as it wrote them
        old.execute("create table alembic_version (version_num varchar(32))")
        old.execute("insert into alembic_version values ('0024')")
    old.close()
    before = (tmp_path / "qualgate.db").read_bytes()
    with pytest.raises(StoreVersionError, match=r"was made by qualgate 0\.1.*it was not changed"):
        asked(url)
    assert (tmp_path / "qualgate.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["qualgate.db"]


def test_a_store_of_a_later_version_is_refused_by_name(url):
    open_store(url).close()
    with sqlite3.connect(url.removeprefix("sqlite:///")) as later:
        later.execute("update alembic_version set version_num = '9.9.9'")
    for asked in (open_store, upgrade):
        with pytest.raises(StoreVersionError, match="a newer qualgate wrote"):
            asked(url)


# ------------------------------------------------------------------------------------------------ to the next one


@pytest.fixture
def old_store(url, next_version, monkeypatch):
    """A store with a run, made before the next migration was there; its run and evidence."""
    away = next_version.rename(next_version.with_suffix(".away"))
    with monkeypatch.context() as old:
        old.setattr(database, "REVISIONS", KNOWN)
        run_id = recorded(url)
        with open_store(url) as store:
            evidence = runs.evidence(store, run_id)
    away.rename(next_version)
    return run_id, evidence


def test_upgrading_keeps_the_evidence_and_a_backup_of_the_old_store(url, old_store, tmp_path):
    run_id, before = old_store
    told = upgrade(url)
    assert f"from revision {LAST} to {AFTER}" in told
    with open_store(url) as store:
        assert runs.evidence(store, run_id) == before
    [backup] = tmp_path.glob("*.backup")
    assert str(backup) in told
    assert of_revision(f"sqlite:///{backup}", "select version_num from alembic_version") == [(LAST,)]
    assert of_revision(f"sqlite:///{backup}", "select count(*) from units") == [(len(PLAN.expected),)]


def test_a_step_that_fails_leaves_the_store_as_it_was(url, old_store, next_version, monkeypatch):
    next_version.write_text(NEXT + '    raise RuntimeError("half-way")\n')
    with pytest.raises(RuntimeError):
        upgrade(url)
    assert of_revision(url, "select version_num from alembic_version") == [(LAST,)]
    assert "note" not in {row[1] for row in of_revision(url, "pragma table_info(runs)")}
    monkeypatch.setattr(database, "REVISIONS", KNOWN)
    with open_store(url) as store:
        assert runs.evidence(store, old_store[0]) == old_store[1]


def test_going_back_is_refused(url):
    run_id, config = recorded(url), scripts()
    with open_store(url) as store:
        with store.write() as connection:
            config.attributes["connection"] = connection
            with pytest.raises(NotImplementedError, match="lose every run"):
                command.downgrade(config, "base")
        assert queries.latest_run(store) == run_id
