"""Runs archived, let go and put back, on every database: to the byte, and nothing is decided without the evidence."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from types import SimpleNamespace

import pyarrow.parquet
import pytest
from sqlalchemy import select

from qualgate.errors import Exit, InfrastructureError, IntegrityError, UsageError
from qualgate.pipeline.rescore import rescore
from qualgate.pipeline.stored import decide_again
from qualgate.report.formats import rendered
from qualgate.report.summary import load_report
from qualgate.store import archive, archived, decisions, queries, runs, scorings, sqlite
from qualgate.store.address import file_of
from qualgate.store.archived import EvidenceArchived
from qualgate.store.copy import copy_store
from qualgate.store.database import Store, open_store
from qualgate.store.schema import APPEND_ONLY, metadata
from qualgate.store.tables import archives, scores, units
from tests.command_line import qualgate
from tests.store.conftest import HOSTILE
from tests.store.made import make_plan, make_results, make_run
from tests.store.tampering import tamper
from tests.store.test_scorings import turned

PLAN = make_plan(cases=4, wrong={"int8": 0.0})
FORMS = ("json", "markdown", "html", "sarif", "junit")


def everything(store):
    """Rows of every table, but for what was done with the archive."""
    with store.read() as connection:
        return {
            table.name: connection.execute(select(table).order_by(*table.primary_key)).all()
            for table in metadata.sorted_tables
            if table is not archives
        }


@pytest.fixture
def run_id(store):
    """The older of two runs of one gate file, with hostile texts and scored again."""
    made = runs.begin(store, PLAN).run_id
    for result, scored in make_results(PLAN):
        said = tuple(replace(one, text=HOSTILE) for one in result.completions)
        marked = {key: tuple(replace(one, reason=HOSTILE, extracted=HOSTILE) for one in each)
                  for key, each in scored.items()}  # fmt: skip
        runs.record(store, made, replace(result, completions=said), marked)
    runs.finish(store, made, [], complete=True)
    scorings.add(store, made, 0, turned(scorings.read(store, made), "exact_match/2"))
    runs.add_verdicts(store, made, decide_again(store.url, made, None).verdicts, PLAN.policy)
    make_run(store, PLAN)
    return made


@pytest.fixture
def pruned(store, run_id, tmp_path):
    archive.archive_run(store, run_id, tmp_path)
    archive.prune_run(store, run_id, tmp_path)
    return run_id


def test_a_run_comes_back_as_it_was_and_its_reports_with_it(store, run_id, tmp_path):
    before, seen = everything(store), runs.evidence(store, run_id, answers=True)
    reports = [rendered(load_report(store.url, run_id), form) for form in FORMS]
    archive.archive_run(store, run_id, tmp_path)
    assert everything(store) == before
    for _ in range(2):  # what came back may go again
        archive.prune_run(store, run_id, tmp_path)
        assert everything(store) != before
        archive.restore_run(store, run_id, tmp_path)
        assert everything(store) == before
    assert runs.evidence(store, run_id, answers=True) == seen
    assert seen.integrity == ()
    assert [rendered(load_report(store.url, run_id), form) for form in FORMS] == reports


def test_what_is_let_go_is_answers_and_scores_and_nothing_sealed_by_itself(store, run_id, tmp_path):
    before = everything(store)
    archive.archive_run(store, run_id, tmp_path)
    archive.prune_run(store, run_id, tmp_path)
    after = everything(store)
    assert [name for name in before if before[name] != after[name]] == ["units", "scores"]
    for was, now in zip(before["units"], after["units"], strict=True):
        named = {name for name, one, other in zip(was._fields, was, now, strict=True) if one != other}
        assert named == (set(archive.EMPTIED) - {"kl_upper"} if now.run_id == run_id else set())
    with store.read() as connection:
        of_run = select(scores).join(units, units.c.unit_id == scores.c.unit_id).where(units.c.run_id == run_id)
        assert connection.execute(of_run).first() is None
    assert {"archives", "verdicts", "decisions"} < APPEND_ONLY


def test_nothing_is_decided_by_a_run_whose_evidence_is_elsewhere(store, pruned, tmp_path):
    verdicts = everything(store)["verdicts"]
    seen = queries.run_summary(store, pruned).verdict("int8").sha256
    for asked in (
        lambda: decide_again(store.url, pruned, None),
        lambda: rescore(store.url, pruned, None),
        lambda: runs.evidence(store, pruned),
        lambda: decisions.append(store, pruned, "int8", "approve", name="A", reason="b", verdict_sha256=seen),
        lambda: archive.archive_run(store, pruned, tmp_path),
    ):
        with pytest.raises(
            EvidenceArchived, match=r"archive .*sha256 of its manifest [0-9a-f]{64}.*qualgate db restore"
        ):
            asked()
    assert EvidenceArchived.exit == Exit.INFRASTRUCTURE
    assert everything(store)["verdicts"] == verdicts
    decisions.append(store, pruned, "int8", "block", name="A", reason="b", verdict_sha256=seen)


def test_a_model_that_is_put_back_as_it_was_is_not_answered_for_by_a_run_that_is_away(store, tmp_path):
    """`nightly` would repeat its verdict, and be refused on every night from then on."""
    old = make_run(store, PLAN)
    make_run(store, replace(PLAN, key="0" * 64))
    archive.archive_run(store, old, tmp_path)
    archive.prune_run(store, old, tmp_path)
    assert queries.newest_complete(store, PLAN.key) is None
    archive.restore_run(store, old, tmp_path)
    assert queries.newest_complete(store, PLAN.key)[0] == old


def test_the_report_of_a_pruned_run_says_where_its_evidence_is_and_approves_nothing(store, pruned, tmp_path):
    report, word = load_report(store.url, pruned), queries.run_summary(store, pruned).verdict("int8").verdict.word
    with store.read() as connection:
        sealed = archived.newest(connection, pruned).manifest_sha256
    assert report.exit == Exit.INFRASTRUCTURE
    assert {verdict.word for verdict in report.verdicts} == {"invalid"}
    assert f"was '{word}'" in report.verdicts[0].reasons[1]
    for form in FORMS:
        assert sealed in rendered(report, form).replace("\\", ""), form


def test_a_store_that_is_moved_keeps_what_it_let_go_and_can_have_it_back(store, pruned, tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'moved.db'}") as moved:
        assert copy_store(store.url, moved.url).broken == ()
        archive.restore_run(moved, pruned, tmp_path)
        archive.restore_run(store, pruned, tmp_path)
        assert everything(moved) == everything(store)


@pytest.mark.parametrize("act", [archive.prune_run, archive.restore_run])
def test_only_an_archive_that_is_the_store_s_own_lets_anything_go_or_come_back(store, run_id, tmp_path, act):
    made = archive.archive_run(store, run_id, tmp_path)
    if act is archive.restore_run:
        archive.prune_run(store, run_id, tmp_path)
    before, (file, manifest) = (
        everything(store),
        (tmp_path / run_id / name for name in ("scores.parquet", "manifest.json")),
    )
    whole, said = file.read_bytes(), manifest.read_text()
    for damage in (whole[:-1], whole[:-200] + bytes(200), b""):
        file.write_bytes(damage)
        with pytest.raises(IntegrityError, match=r"not the archive that was written.*scores\.parquet was changed"):
            act(store, run_id, tmp_path)
    file.unlink()
    with pytest.raises(InfrastructureError, match=rf"scores\.parquet: No such file.*{made.manifest_sha256}"):
        act(store, run_id, tmp_path)
    with pytest.raises(InfrastructureError, match=r"manifest\.json: No such file"):
        act(store, run_id, tmp_path / "elsewhere")
    file.write_bytes(whole)
    for other in ("{}", said.replace("0", "1"), ""):
        manifest.write_text(other)
        with pytest.raises(IntegrityError, match=r"manifest\.json is another"):
            act(store, run_id, tmp_path)
    assert everything(store) == before
    manifest.write_text(said)
    act(store, run_id, tmp_path)
    assert everything(store) != before


def test_a_run_that_still_counts_or_changed_since_is_not_let_go(store, run_id, tmp_path):
    newest = queries.latest_run(store)
    for one in (newest, run_id):
        with pytest.raises(UsageError, match=rf"was not archived.*qualgate db archive FOLDER --run {one}"):
            archive.prune_run(store, one, tmp_path)
        archive.archive_run(store, one, tmp_path)
    with pytest.raises(UsageError, match="one of the last 1 of its gate file: its evidence stays"):
        archive.prune_run(store, newest, tmp_path)
    scorings.add(store, run_id, 1, turned(scorings.read(store, run_id), "exact_match/3"))
    with pytest.raises(IntegrityError, match=r"scores of run .* are not as in the store. Archive it again"):
        archive.prune_run(store, run_id, tmp_path)
    with pytest.raises(UsageError, match=r"holds the run with other rows.*Give another folder"):
        archive.archive_run(store, run_id, tmp_path)
    archive.archive_run(store, run_id, tmp_path / "again")
    with pytest.raises(IntegrityError, match=r"manifest.json is another"):
        archive.prune_run(store, run_id, tmp_path)
    archive.prune_run(store, run_id, tmp_path / "again")
    for act, said in ((archive.prune_run, "was pruned already"), (archive.archive_run, "qualgate db restore")):
        with pytest.raises((UsageError, EvidenceArchived), match=said):
            act(store, run_id, tmp_path / "again")
    archive.restore_run(store, run_id, tmp_path / "again")
    with pytest.raises(UsageError, match="was not pruned"):
        archive.restore_run(store, run_id, tmp_path / "again")


def test_an_act_that_is_stopped_at_its_beginning_changes_nothing_and_is_done_again(
    store, run_id, tmp_path, monkeypatch
):
    before = everything(store)

    def stopped(*_):
        raise KeyboardInterrupt

    for act in (archive.archive_run, archive.prune_run, archive.restore_run):
        with monkeypatch.context() as patch:
            patch.setattr(archived, "add", stopped)
            with pytest.raises(KeyboardInterrupt):
                act(store, run_id, tmp_path)
        assert everything(store) == before
        act(store, run_id, tmp_path)
        before = everything(store)


def stopped_after(turns, act):
    """Whether it was stopped before its end, so many transactions of it written."""
    left, write = [turns], Store.write

    def counted(store, run=""):
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return write(store, run)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Store, "write", counted)
        try:
            act()
        except KeyboardInterrupt:
            return True
    return False


@pytest.mark.parametrize(("act", "other"), [(archive.prune_run, archive.restore_run),
                                            (archive.restore_run, archive.prune_run)])  # fmt: skip
def test_a_run_of_which_a_part_went_or_came_back_does_not_count_and_goes_on_either_way(
    store, run_id, tmp_path, monkeypatch, act, other
):
    monkeypatch.setattr(archive, "TURN", 7)
    kept = everything(store)["verdicts"]
    archive.archive_run(store, run_id, tmp_path)
    archive.prune_run(store, run_id, tmp_path)
    if act is archive.prune_run:
        archive.restore_run(store, run_id, tmp_path)
    before, parts = everything(store), []
    for turns in itertools.count(1):
        if not stopped_after(turns, lambda: act(store, run_id, tmp_path)):
            break
        parts.append(everything(store))
        with pytest.raises(EvidenceArchived):
            runs.evidence(store, run_id)
        assert parts[-1]["verdicts"] == kept
        assert archive.to_restore(store, tmp_path) == [run_id]
        assert archive.to_prune(store, tmp_path, "9999", 1) == [run_id] * (act is archive.prune_run)
        other(store, run_id, tmp_path)
        assert everything(store) == before
        assert stopped_after(turns, lambda: act(store, run_id, tmp_path))
        act(store, run_id, tmp_path)
        after = everything(store)
        other(store, run_id, tmp_path)
        assert everything(store) == before
    assert everything(store) == after != before
    assert sum(part not in (before, after) for part in parts) > 2


@pytest.mark.parametrize("act", [archive.prune_run, archive.restore_run])
def test_of_two_acts_on_a_run_the_later_one_takes_over(store, run_id, tmp_path, monkeypatch, act):
    archive.archive_run(store, run_id, tmp_path)
    archive.prune_run(store, run_id, tmp_path)
    if act is archive.prune_run:
        archive.restore_run(store, run_id, tmp_path)
    before = everything(store)
    turn, begun = archive._turn, []

    def slow(store, last):
        if last.event not in ("pruning", "restoring") or begun:
            return turn(store, last)
        begun.append(last)
        act(store, run_id, tmp_path)
        return turn(store, last)

    monkeypatch.setattr(archive, "_turn", slow)
    with pytest.raises(UsageError, match="by another process meanwhile"):
        act(store, run_id, tmp_path)
    assert begun
    assert everything(store) != before


def test_scores_made_while_their_run_is_let_go_are_not_stored(store, run_id, pruned, tmp_path):
    archive.restore_run(store, run_id, tmp_path)
    last = scorings.read(store, run_id)
    archive.prune_run(store, run_id, tmp_path)
    empty = everything(store)
    with pytest.raises(EvidenceArchived):
        scorings.add(store, run_id, last.number, turned(last, "exact_match/3"))
    assert everything(store) == empty


def test_a_run_that_is_under_way_or_damaged_is_not_archived(store, tmp_path):
    part = make_run(store, PLAN, jobs=1)
    with pytest.raises(UsageError, match="is running, and may still go on: only a complete run is archived"):
        archive.archive_run(store, part, tmp_path)
    done = make_run(store, make_plan(cases=3, wrong={"int8": 0.0}))
    with store.write() as connection:
        connection.execute(scores.update().values(value=0.5))
    with pytest.raises(IntegrityError, match="are not what was recorded"):
        archive.archive_run(store, done, tmp_path)
    assert list(tmp_path.glob("*/*.parquet")) == []


def test_a_row_that_says_where_a_run_went_is_sealed(store, pruned):
    tamper(store, "update archives set event = 'restored' where event = 'pruned'")
    with pytest.raises(IntegrityError, match=r"where run .* is archived is not what was recorded"):
        runs.evidence(store, pruned)


def test_the_last_of_a_gate_file_and_what_was_approved_stay(store, tmp_path):
    first, approved, *others = (make_run(store, PLAN) for _ in range(6))
    seen = queries.run_summary(store, approved).verdict("int8").sha256
    decisions.append(store, approved, "int8", "approve", name="Ada", reason="good", verdict_sha256=seen)
    assert archive.to_archive(store, "9999", 2) == [first, *others[:2]]
    assert archive.to_archive(store, "9999", 1) == [first, *others[:3]]
    assert archive.to_archive(store, "2000", 1) == []
    archive.archive_run(store, first, tmp_path)
    assert archive.to_archive(store, "9999", 2) == others[:2]
    assert archive.to_prune(store, tmp_path, "9999", 2) == [first]
    archive.prune_run(store, first, tmp_path)
    assert archive.to_prune(store, tmp_path, "9999", 2) == []
    assert archive.to_restore(store, tmp_path) == [first]
    archive.archive_run(store, approved, tmp_path)
    with pytest.raises(UsageError, match=r"the newest that approved 'int8'|held against"):
        archive.prune_run(store, approved, tmp_path)
    assert all(first not in one.run_ids for one in queries.watched(store, others[-1]))


def test_an_archive_reads_as_tables_of_many_runs(store, run_id, tmp_path):
    newest = queries.latest_run(store)
    for one in (run_id, newest):
        archive.archive_run(store, one, tmp_path)
    for table in archive.OF_A_RUN:
        kept = [row for one in (run_id, newest) for row in
                pyarrow.parquet.read_table(tmp_path / one / f"{table.name}.parquet").to_pylist()]  # fmt: skip
        assert {tuple(row.values()) for row in kept} == set(map(tuple, everything(store)[table.name])), table.name


def test_room_that_was_freed_goes_back_to_the_disk_or_it_is_told_why_not(store, tmp_path, monkeypatch):
    with store.write() as connection:
        connection.exec_driver_sql(f"CREATE TABLE large AS SELECT '{'ab' * 1_000_000}' AS t")
        connection.exec_driver_sql("DROP TABLE large")
    path = file_of(store.url)
    if path is None:
        assert re.match(r"\d+\.\d\d MiB came back to the disk\. What is written next uses the rest", store.shrink())
        return
    large, disk = sqlite._size(path), sqlite.disk_usage
    monkeypatch.setattr(sqlite, "disk_usage", lambda _: SimpleNamespace(free=1))
    assert "free disk are needed to make it smaller, 0.00 MiB are" in store.shrink()
    monkeypatch.setattr(sqlite, "disk_usage", disk)
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.05)
    with store.write():
        assert "it was not made smaller (database is locked)" in sqlite.shrink(path)
    assert sqlite._size(path) > large / 2
    assert store.shrink().endswith("MiB came back to the disk")
    assert sqlite._size(path) < large / 2


def test_the_commands_archive_prune_and_restore(tmp_path):
    url, folder = f"sqlite:///{tmp_path / 'q.db'}", str(tmp_path / "archive")
    with open_store(url) as store:
        first, _ = make_run(store, PLAN), make_run(store, PLAN)

    def db(*words: str) -> tuple[int, str]:
        done = qualgate("db", *words, "--store", url)
        return done.returncode, done.stdout + done.stderr

    assert db("prune", folder)[0] == Exit.USAGE
    assert db("archive", folder) == (0, "No run to archive: all are younger, stay, or are archived already.\n")
    code, said = db("archive", folder, "--older-than", "0", "--keep", "1")
    assert (code, said.count("\n")) == (0, 1)
    assert f"{first}: archived in {folder}/{first}, sha256" in said
    assert "No run to prune" in db("prune", folder)[1]
    said = db("prune", folder, "--older-than", "0", "--keep", "1")[1]
    assert f"until `qualgate db restore {folder}`" in said
    assert re.search(r"q\.db: \d\.\d\d MiB came back to the disk\n$", said)
    assert qualgate("gate", "--run", first, "--store", url).returncode == Exit.INFRASTRUCTURE
    shown = qualgate("report", "--run", first, "--format", "markdown", "--store", url).stdout
    assert f"{folder}/{first}" in shown.replace("\\", "")
    assert db("restore", folder) == (0, f"{first}: is whole again, its seals hold\n")
    assert "No run to restore" in db("restore", folder)[1]


def test_a_run_that_is_damaged_is_named_and_keeps_no_other_from_being_archived_or_pruned(tmp_path):
    url, folder = f"sqlite:///{tmp_path / 'q.db'}", tmp_path / "archive"
    with open_store(url) as store:
        damaged, torn, whole, _, _ = (make_run(store, PLAN) for _ in range(5))
        change = "update scores set value = 0.5 where unit_id in (select unit_id from units where run_id = :run)"
        tamper(store, change, run=damaged)
    every = ("--store", url, "--older-than", "0", "--keep", "1")
    done = qualgate("db", "archive", str(folder), *every)
    assert done.returncode == Exit.INTEGRITY
    assert f"run {damaged}: " in done.stdout
    assert f"{whole}: archived in" in done.stdout
    (folder / torn / "scores.parquet").write_bytes(b"torn")
    done = qualgate("db", "prune", str(folder), *every)
    assert done.returncode == Exit.INTEGRITY
    assert f"{torn}: scores.parquet was changed" in done.stdout
    assert f"{whole}: its answers and scores are in" in done.stdout
    assert "came back to the disk" in done.stdout
