"""The migrations end where the tables are, and never lose data on the way."""

from __future__ import annotations

import shutil
import sqlite3
from dataclasses import replace

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import text

from qualgate.errors import StoreVersionError
from qualgate.gate.verdict import decide_plain
from qualgate.records import Completion, JobResult, Submission
from qualgate.store import answered, database, leases, queries, rows, runs, submissions
from qualgate.store.database import migrations_folder, open_store, upgrade
from qualgate.store.nights import Night, add_night, last_nights, undelivered
from qualgate.store.schema import metadata
from tests.depth import with_proofs
from tests.drafts import with_drafts
from tests.store.made import make_plan, make_results

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


def at_revision(url: str, revision: str) -> None:
    """Make an empty store as that revision made it."""
    config = scripts()
    with database._unchecked(url) as store, store.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)


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


# ------------------------------------------------------------------------------------------- from older revisions


def as_it_answered(revision: str, result: JobResult) -> JobResult:
    """Return a job's result with the drafts that a program of this revision counted."""
    counts: dict[str, object]
    if revision < "0007":  # what the baseline's answer offered
        counts = {"baseline_proposed": 0 if result.arm == "baseline" else 9, "baseline_accepted": 4}
        counts |= {"kernel": None} if revision < "0002" else {}
    else:
        counts = {"draft_proposed": 7, "draft_accepted": 5}
    if revision < "0010":  # by answer alone
        return replace(result, completions=tuple(replace(one, **counts) for one in result.completions))
    drafted = with_drafts(result) if result.arm == "int8" else result
    if revision >= "0020":
        return drafted
    steps = (replace(step, pass_number=None, sequences=None, overlap=None) for step in drafted.draft_steps)
    return replace(drafted, draft_steps=tuple(steps))


def unbatched(completion: Completion, drift, scores, *later):
    """Return a unit's row as a version before 0006 wrote it, which did not know its batch."""
    return rows.unit_row(completion, drift, scores)


def made_by(revision: str, url: str) -> str:
    """Record a run of what that revision could say, in a store of today's; returns its id."""
    with pytest.MonkeyPatch.context() as patch, open_store(url) as store:
        if revision < "0006":
            patch.setattr(answered, "unit_row", unbatched)
        run_id = runs.begin(store, PLAN).run_id
        for result, scores in make_results(PLAN):
            runs.record(store, run_id, as_it_answered(revision, result), scores)
        runs.finish(store, run_id, decide_plain(runs.evidence(store, run_id), PLAN.policy), complete=True)
    return run_id


def as_held_by(revision: str, url: str, new: str) -> None:
    """Make a store of an older revision with the rows of `new`, as far as it has columns for them."""
    at_revision(url, revision)
    with sqlite3.connect(url.removeprefix("sqlite:///")) as connection:
        connection.execute("attach ? as new", (new.removeprefix("sqlite:///"),))
        tables = {row[0] for row in connection.execute("select name from main.sqlite_master where type = 'table'")}
        for table in tables - {"alembic_version"}:
            columns = [row[1] for row in connection.execute(f"pragma main.table_info({table})")]
            named = [name.replace("draft_", "baseline_") if revision < "0007" else name for name in columns]
            connection.execute(
                f"insert into main.{table} ({', '.join(columns)}) select {', '.join(named)} from new.{table}"
            )


@pytest.mark.parametrize("revision", with_proofs(KNOWN[:-1], set(KNOWN[1:-1]) - {"0019"}))
def test_a_run_of_an_older_revision_is_the_same_evidence_once_upgraded_and_its_seals_hold(url, tmp_path, revision):
    new = f"sqlite:///{tmp_path / 'new.db'}"
    run_id = made_by(revision, new)
    with open_store(new) as store:
        before = runs.evidence(store, run_id), queries.run_summary(store, run_id), queries.queue(store)
        drafted = queries.drafted(store, run_id, "int8")
    assert before[0].integrity == ()
    assert before[2]
    assert bool(drafted) == (revision >= "0010"), "counted by step only since then"
    as_held_by(revision, url, new)
    with pytest.raises(StoreVersionError, match="qualgate db upgrade"):
        open_store(url)
    assert f"from revision {revision} to {LAST}" in upgrade(url)
    with open_store(url) as store:
        assert (runs.evidence(store, run_id), queries.run_summary(store, run_id), queries.queue(store)) == before
        assert queries.drafted(store, run_id, "int8") == drafted
        assert (last_nights(store, "n"), undelivered(store, "n")) == ((), ())
    assert of_revision(url, "pragma foreign_key_check") == []
    assert of_revision(url, "select distinct scoring from scores") == [(0,)]


def test_what_revision_0006_called_drafted_is_the_baselines_answer_and_is_sealed(url, tmp_path):
    new = f"sqlite:///{tmp_path / 'new.db'}"
    run_id = made_by("0006", new)
    as_held_by("0006", url, new)
    assert of_revision(url, "select max(draft_proposed), max(draft_accepted) from units") == [(9, 4)]
    upgrade(url)
    with open_store(url) as store:
        times = queries.answer_times(store, run_id)
        assert {time.drafted for key, time in times.items() if key.arm == "int8"} == {True}
        units = [unit for arm in runs.evidence(store, run_id).variants for unit in arm.units]
        assert {(unit.draft_proposed, unit.draft_accepted, unit.values["latency.e2e"]) for unit in units} == {
            (None, None, None)
        }
        with store.write() as connection:
            connection.execute(text("update units set baseline_proposed = 0 where arm = 'int8'"))
        assert len(runs.evidence(store, run_id).integrity) == sum(key.arm == "int8" for key in PLAN.expected)


def test_a_store_that_was_upgraded_takes_submissions_and_nights(url):
    at_revision(url, "0014")
    upgrade(url)
    night = Night(
        nightly="n", gate="a", model="", due_at="1", began_at="2", finished_at="3", run_id=None, repeated=False, exit=0,
    )  # fmt: skip
    handed = Submission(owner="a", name="g.yaml", folder="/w", gate_file="", program="1", files={"/w/x": b"x"})
    with open_store(url) as store:
        add_night(store, night)
        assert last_nights(store, "n") == (night,)
        name = submissions.submit(store, handed)
        assert leases.claim(store, "n1", "1", 30.0).lease.submission == name


# ------------------------------------------------------------------------------------------------ to the next one


@pytest.fixture
def old_store(url, next_version, monkeypatch):
    """A store with a run, made before the next migration was there; its run and evidence."""
    away = next_version.rename(next_version.with_suffix(".away"))
    with monkeypatch.context() as old:
        old.setattr(database, "REVISIONS", KNOWN)
        run_id = made_by(LAST, url)
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
    run_id, config = made_by(LAST, url), scripts()
    with open_store(url) as store:
        with store.write() as connection:
            config.attributes["connection"] = connection
            with pytest.raises(NotImplementedError, match="lose every run"):
                command.downgrade(config, "base")
        assert queries.latest_run(store) == run_id
