"""The migrations end where the tables are, and never lose data on the way."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from qualgate.errors import IntegrityError, StoreVersionError
from qualgate.records import Submission
from qualgate.store import answered, database, leases, queries, rows, runs, submissions
from qualgate.store.database import migrations_folder, open_store, upgrade
from qualgate.store.nights import Night, add_night, last_nights, undelivered
from qualgate.store.schema import metadata
from tests.drafts import with_drafts
from tests.migrations.older import drop_columns_of_0020, drop_later_tables
from tests.store.made import make_plan, make_results, make_run

KNOWN = database.REVISIONS  # of this version, oldest first
LAST = KNOWN[-1]
AFTER = f"{int(LAST) + 1:04}"
NEXT = f'''"""A step that a later version might bring."""
import sqlalchemy as sa
from alembic import op

revision = "{AFTER}"
down_revision = "{LAST}"


def upgrade():
    op.add_column("runs", sa.Column("note", sa.Text()))
'''


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path / 'qualgate.db'}"


@pytest.fixture
def before_0006(monkeypatch):
    """Units are written as by a version that did not know their batches."""
    monkeypatch.setattr(
        answered, "unit_row", lambda completion, drift, said, *later: rows.unit_row(completion, drift, said)
    )


@pytest.fixture
def next_version(tmp_path, monkeypatch):
    """The program one migration later."""
    folder = shutil.copytree(migrations_folder(), tmp_path / "migrations")
    (folder / "versions" / f"{AFTER}_next.py").write_text(NEXT)
    monkeypatch.setattr(database, "migrations_folder", lambda: folder)
    monkeypatch.setattr(database, "REVISIONS", (*KNOWN, AFTER))


def test_the_program_knows_exactly_the_migrations_there_are():
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    scripts = ScriptDirectory.from_config(config)
    assert tuple(reversed([script.revision for script in scripts.walk_revisions()])) == database.REVISIONS
    assert len(scripts.get_heads()) == 1


def test_the_migrations_make_the_tables_of_the_program(url):
    with open_store(url) as store, store.read() as connection:
        assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), metadata) == []
        made = dict(connection.execute(text("select name, sql from sqlite_master where type = 'table'")).all())
    for table in metadata.tables.values():
        for constraint in table.constraints:
            named = constraint.name
            assert f"CONSTRAINT {named} " in made[table.name], f"{named}: an unnamed constraint can never be dropped"


def test_upgrading_keeps_the_evidence_and_a_backup_of_the_old_store(url, next_version, monkeypatch, tmp_path):
    with monkeypatch.context() as old:
        old.setattr(database, "REVISIONS", KNOWN)
        old.setattr(database, "migrations_folder", lambda: Path(__file__).resolve().parents[2] / "migrations")
        with open_store(url) as store:
            run_id = make_run(store, make_plan(cases=3))
            before = runs.evidence(store, run_id)
    said = upgrade(url)
    assert f"from revision {LAST} to {AFTER}" in said
    with open_store(url) as store:
        assert runs.evidence(store, run_id) == before
    [backup] = tmp_path.glob("*.backup")
    assert str(backup) in said
    with sqlite3.connect(backup) as connection:
        assert connection.execute("select version_num from alembic_version").fetchall() == [(LAST,)]
        assert connection.execute("select count(*) from units").fetchone() == (45,)


def as_held_by(revision: str, url: str, new: Path) -> None:
    """A store of an older revision with what the store in `new` says, as far as it could say it."""
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    with database._unchecked(url) as store, store.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("attach ? as new", (str(new),))
        tables = {row[0] for row in connection.execute("select name from main.sqlite_master where type = 'table'")}
        for table in tables - {"alembic_version"}:
            columns = [row[1] for row in connection.execute(f"pragma main.table_info({table})")]
            named = [column.replace("draft_", "baseline_") for column in columns]  # until 0007
            connection.execute(
                f"insert into main.{table} ({', '.join(columns)}) select {', '.join(named)} from new.{table}"
            )


def test_what_revision_0006_called_drafted_is_the_baselines_answer_and_its_seals_hold(url, tmp_path):
    plan = make_plan(cases=3)
    with open_store(f"sqlite:///{tmp_path / 'new.db'}") as new:
        run_id = runs.begin(new, plan).run_id
        for result, scores in make_results(plan):
            offered = 0 if result.arm == "baseline" else 9
            said = tuple(replace(c, baseline_proposed=offered, baseline_accepted=4) for c in result.completions)
            runs.record(new, run_id, replace(result, completions=said), scores)
        before = runs.evidence(new, run_id)
    as_held_by("0006", url, tmp_path / "new.db")
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        assert connection.execute("select max(draft_proposed), max(draft_accepted) from units").fetchone() == (9, 4)
    assert f"from revision 0006 to {LAST}" in upgrade(url)
    with open_store(url) as store:
        after = runs.evidence(store, run_id)
        times = queries.answer_times(store, run_id)
        assert {time.drafted for key, time in times.items() if key.arm == "int8"} == {True}
    assert (after, after.integrity) == (before, ())
    assert {(one.draft_proposed, one.draft_accepted) for arm in after.variants for one in arm.units} == {(None, None)}
    assert {unit.values["latency.e2e"] for arm in after.variants for unit in arm.units} == {None}
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("update units set baseline_proposed = 0 where arm = 'int8'")
    with open_store(url) as store:
        assert len(runs.evidence(store, run_id).integrity) == sum(key.arm == "int8" for key in plan.expected)


def test_scores_of_revision_0002_are_kept_as_the_recorded_ones(url, tmp_path, before_0006):
    with open_store(f"sqlite:///{tmp_path / 'new.db'}") as new:
        run_id = make_run(new, make_plan(cases=3))
        before, summary = runs.evidence(new, run_id), queries.run_summary(new, run_id)
    as_held_by("0002", url, tmp_path / "new.db")
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        counted = connection.execute("select count(*) from scores").fetchone()
        assert "scoring" not in {row[1] for row in connection.execute("pragma table_info(scores)")}
    assert f"from revision 0002 to {LAST}" in upgrade(url)
    with open_store(url) as store:
        assert runs.evidence(store, run_id) == before
        assert queries.run_summary(store, run_id) == summary
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        assert connection.execute("select count(*) from scores where scoring = 0").fetchone() == counted
        assert connection.execute("pragma foreign_key_check").fetchall() == []


def test_a_store_of_revision_0014_takes_submissions_once_upgraded(url):
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    with database._unchecked(url) as store, store.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0014")
    with pytest.raises(StoreVersionError, match="qualgate db upgrade"):
        open_store(url)
    assert f"from revision 0014 to {LAST}" in upgrade(url)
    with open_store(url) as store:
        name = submissions.submit(
            store, Submission(owner="a", name="gate.yaml", folder="/w", gate_file="", program="1", files={"/w/x": b"x"})
        )
        assert leases.claim(store, "n1", "1", 30.0).lease.submission == name


def test_a_run_of_revision_0003_stopped_no_variant_and_keeps_its_verdicts(url, before_0006):
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=3))
        before = runs.evidence(store, run_id), queries.run_summary(store, run_id)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:  # as 0003 held it
        connection.execute("drop table stoppings")
        connection.execute("drop table draft_steps")
        drop_later_tables(connection)
        connection.execute("alter table units drop column kl_upper")
        connection.execute("alter table units drop column max_gap")
        connection.execute("alter table units drop column constraint_masked")
        connection.execute("alter table units drop column kl_eta")
        connection.execute("alter table units drop column job")
        connection.execute("alter table units drop column began")
        connection.execute("alter table runs drop column gate_name")
        for name in ("proposed", "accepted"):
            connection.execute(f"alter table units drop column draft_{name}")
            connection.execute(f"alter table units rename column baseline_{name} to draft_{name}")
        connection.execute("update alembic_version set version_num = '0003'")
    assert f"from revision 0003 to {LAST}" in upgrade(url)
    with open_store(url) as store:
        assert (runs.evidence(store, run_id), queries.run_summary(store, run_id)) == before
        assert all(arm.stopped is None for arm in runs.evidence(store, run_id).variants)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("insert into stoppings values (?, 'int8', 1, 2, 'block', '', '', '', '')", (run_id,))
        for change in ("update stoppings set look = 2", "delete from stoppings"):
            with pytest.raises(sqlite3.IntegrityError, match="append-only"):
                connection.execute(change)


def test_a_run_of_revision_0012_knows_every_kl_itself_and_its_seals_hold(url):
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=3))
        before = runs.evidence(store, run_id)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        drop_later_tables(connection)
        connection.execute("alter table units drop column kl_upper")
        connection.execute("update alembic_version set version_num = '0012'")
    assert f"from revision 0012 to {LAST}" in upgrade(url)
    with open_store(url) as store:
        assert runs.evidence(store, run_id) == before
        assert before.integrity == ()
        assert {unit.kl_upper for arm in before.variants for unit in arm.units} == {None}


def test_a_run_of_revision_0017_has_no_thoughts_counted_its_seals_hold_and_new_runs_have_some(url):
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=3))
        before = runs.evidence(store, run_id)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("alter table units drop column thought_tokens")
        connection.execute("drop table archives")
        drop_columns_of_0020(connection)
        connection.execute("update alembic_version set version_num = '0017'")
    assert f"from revision 0017 to {LAST}" in upgrade(url)
    with open_store(url) as store:
        assert runs.evidence(store, run_id) == before
        assert before.integrity == ()
        later = make_plan(cases=3, seed=1)
        new = runs.begin(store, later).run_id
        for result, scores in make_results(later):
            said = tuple(replace(completion, thought=2) for completion in result.completions)
            runs.record(store, new, replace(result, completions=said), scores)
        found = runs.evidence(store, new)
        assert found.integrity == ()
        assert {unit.thought for unit in found.baseline.units} == {2}
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("update units set thought_tokens = 1 where run_id = ? and arm = 'int8'", (new,))
    with open_store(url) as store:
        assert runs.evidence(store, new).integrity


def test_a_run_of_revision_0011_has_no_waits_between_tokens_its_seals_hold_and_new_runs_have_some(url):
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=3))
        before = runs.evidence(store, run_id)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        drop_later_tables(connection)
        connection.execute("alter table units drop column kl_upper")
        connection.execute("alter table units drop column max_gap")
        connection.execute("update alembic_version set version_num = '0011'")
    assert f"from revision 0011 to {LAST}" in upgrade(url)
    with open_store(url) as store:
        assert runs.evidence(store, run_id) == before
        assert before.integrity == ()
        later = make_plan(cases=3, seed=1)
        new = runs.begin(store, later).run_id
        for result, scores in make_results(later):
            said = tuple(replace(completion, max_gap=0.25) for completion in result.completions)
            runs.record(store, new, replace(result, completions=said), scores)
        found = runs.evidence(store, new)
        assert found.integrity == ()
        assert {unit.values["latency.max_gap"] for unit in found.baseline.units if unit.tokens > 1} == {0.25}
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("update units set max_gap = 0.1 where run_id = ? and arm = 'int8'", (new,))
    with open_store(url) as store:
        assert runs.evidence(store, new).integrity


def test_a_run_of_revision_0010_has_no_masked_shares_its_seals_hold_and_new_runs_have_some(url):
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=3))
        before = runs.evidence(store, run_id)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        drop_later_tables(connection)
        connection.execute("alter table units drop column kl_upper")
        connection.execute("alter table units drop column max_gap")
        connection.execute("alter table units drop column constraint_masked")
        connection.execute("update alembic_version set version_num = '0010'")
    assert f"from revision 0010 to {LAST}" in upgrade(url)
    with open_store(url) as store:
        assert runs.evidence(store, run_id) == before
        assert before.integrity == ()
        later = make_plan(cases=3, seed=1)
        new = runs.begin(store, later).run_id
        for result, scores in make_results(later):
            said = tuple(replace(completion, masked=0.25) for completion in result.completions)
            runs.record(store, new, replace(result, completions=said), scores)
        found = runs.evidence(store, new)
        assert found.integrity == ()
        assert {unit.masked for unit in found.baseline.units} == {0.25}
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("update units set constraint_masked = 0.1 where run_id = ? and arm = 'int8'", (new,))
    with open_store(url) as store:
        assert runs.evidence(store, new).integrity


def test_a_run_of_revision_0009_has_no_draft_steps_its_seals_hold_and_new_runs_have_some(url):
    plan = make_plan(cases=3)
    with open_store(url) as store:
        run_id = runs.begin(store, plan).run_id
        for result, scores in make_results(plan):  # counted by answer, as 0007 to 0009 could
            said = tuple(replace(c, draft_proposed=7, draft_accepted=5) for c in result.completions)
            runs.record(store, run_id, replace(result, completions=said), scores)
        before = runs.evidence(store, run_id)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("drop table draft_steps")
        drop_later_tables(connection)
        connection.execute("alter table units drop column kl_upper")
        connection.execute("alter table units drop column max_gap")
        connection.execute("alter table units drop column constraint_masked")
        connection.execute("update alembic_version set version_num = '0009'")
    assert f"from revision 0009 to {LAST}" in upgrade(url)
    with open_store(url) as store:
        assert runs.evidence(store, run_id) == before
        assert before.integrity == ()
        assert queries.drafted(store, run_id, "int8") == {}
        later = make_plan(cases=3, seed=1)
        new = runs.begin(store, later).run_id
        for result, scores in make_results(later):
            runs.record(store, new, with_drafts(result) if result.arm == "int8" else result, scores)
        assert runs.evidence(store, new).integrity == ()
        assert queries.drafted(store, new, "int8")


def test_a_run_of_revision_0008_has_no_name_and_its_seal_holds(url):
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=3))
        before = runs.evidence(store, run_id)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("drop table draft_steps")
        drop_later_tables(connection)
        connection.execute("alter table units drop column kl_upper")
        connection.execute("alter table units drop column max_gap")
        connection.execute("alter table units drop column constraint_masked")
        connection.execute("alter table runs drop column gate_name")
        connection.execute("update alembic_version set version_num = '0008'")
    assert f"from revision 0008 to {LAST}" in upgrade(url)
    with open_store(url) as store:
        assert runs.evidence(store, run_id) == before
        assert {line.called.gate_file for line in queries.queue(store)} == {""}


def test_a_step_that_fails_leaves_the_store_as_it_was(url, next_version, tmp_path):
    versions = tmp_path / "migrations" / "versions"
    head = versions / f"{AFTER}_next.py"
    head.unlink()
    monkey = pytest.MonkeyPatch()
    monkey.setattr(database, "REVISIONS", KNOWN)
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=3))
    monkey.undo()
    head.write_text(NEXT + '    raise RuntimeError("half-way")\n')
    with pytest.raises(RuntimeError):
        upgrade(url)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        assert connection.execute("select version_num from alembic_version").fetchall() == [(LAST,)]
        assert "note" not in {row[1] for row in connection.execute("pragma table_info(runs)")}
    monkey.setattr(database, "REVISIONS", KNOWN)
    with open_store(url) as store:
        assert queries.latest_run(store) == run_id
    monkey.undo()


def test_going_back_is_refused(url):
    config = Config()
    config.set_main_option("script_location", str(migrations_folder()))
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=3))
        with store.write() as connection:
            config.attributes["connection"] = connection
            with pytest.raises(NotImplementedError, match="lose every run"):
                command.downgrade(config, "base")
        assert queries.latest_run(store) == run_id


def test_a_store_of_revision_0016_keeps_its_runs_and_has_no_nights_until_some_are_kept(url):
    with open_store(url) as store:
        run_id = make_run(store)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        for table in ("nights", "digests", "archives"):
            connection.execute(f"drop table {table}")
        connection.execute("alter table units drop column thought_tokens")
        drop_columns_of_0020(connection)
        connection.execute("update alembic_version set version_num = '0016'")
    assert f"upgraded from revision 0016 to {LAST}" in upgrade(url)
    with open_store(url) as store:
        assert (last_nights(store, "n"), undelivered(store, "n")) == ((), ())
        night = Night(
            nightly="n",
            gate="a",
            model="",
            due_at="1",
            began_at="2",
            finished_at="3",
            run_id=run_id,
            repeated=False,
            exit=0,
        )
        add_night(store, night)
        assert last_nights(store, "n") == (night,)
        with pytest.raises(IntegrityError, match="append-only"), store.write() as connection:
            connection.execute(text("update nights set exit = 0"))
