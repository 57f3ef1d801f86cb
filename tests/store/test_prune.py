"""Runs pruned, on every database: what goes and stays, that it is told, and that no damage passes for it."""

from __future__ import annotations

import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from sqlalchemy import insert, select, true

from qualgate.errors import Exit, IntegrityError, UsageError
from qualgate.pipeline.rescore import rescore
from qualgate.pipeline.stored import decide_again
from qualgate.report.formats import rendered
from qualgate.report.nights import shown_nights
from qualgate.report.run_list import print_runs
from qualgate.report.summary import load_report
from qualgate.store import decisions, judgements, plain, prune, prunings, queries, runs, scorings, seals, sqlite
from qualgate.store.address import file_of
from qualgate.store.copy import copy_store
from qualgate.store.database import open_store
from qualgate.store.prunings import EvidencePruned
from qualgate.store.queries import retention
from qualgate.store.schema import APPEND_ONLY, metadata
from qualgate.store.sealed import sealed_row
from qualgate.store.tables import scores, sealed
from tests.command_line import qualgate
from tests.store.conftest import HOSTILE
from tests.store.made import make_plan, make_results, make_run, said
from tests.store.tampering import tamper
from tests.store.test_judgements import ONE as REPLY
from tests.store.test_scorings import turned

PLAN = make_plan(cases=4, wrong={"int8": 0.0})
FORMS = ("json", "markdown", "html", "sarif", "junit")
EVER = "9999"


def everything(store):
    """Rows of every table, but for the records of prunings."""
    with store.read() as connection:
        return {
            table.name: connection.execute(
                select(table)
                .where(table.c.kind != "pruning" if table is sealed else true())
                .order_by(*table.primary_key)
            ).all()
            for table in metadata.sorted_tables
        }


@pytest.fixture
def run_id(store):
    """The older of two runs of one gate file, with hostile texts and scored again."""
    made = runs.begin(store, PLAN).run_id
    for result, scored in make_results(PLAN):
        said = tuple(replace(one, text=HOSTILE, calls=((HOSTILE, "{}"),)) for one in result.completions)
        marked = {key: tuple(replace(one, reason=HOSTILE, extracted=HOSTILE) for one in each)
                  for key, each in scored.items()}  # fmt: skip
        runs.record(store, made, replace(result, completions=said), marked)
    runs.finish(store, made, [], complete=True)
    scorings.add(store, made, 0, turned(scorings.read(store, made), "exact_match/2"))
    runs.add_verdicts(store, made, decide_again(store.url, made, None).verdicts, PLAN.policy)
    make_run(store, PLAN)
    return made


@pytest.fixture
def pruned(store, run_id):
    prune.prune_run(store, run_id)
    return run_id


def test_answers_and_scores_go_and_nothing_else(store, run_id):
    before = everything(store)
    [expected], staying = prune.to_prune(store, EVER)
    removed = prune.prune_run(store, run_id)
    assert removed == expected
    assert staying == 1
    after = everything(store)
    assert [name for name in before if before[name] != after[name]] == ["units", "scores"]
    for was, now in zip(before["units"], after["units"], strict=True):
        named = {name for name, one, other in zip(was._fields, was, now, strict=True) if one != other}
        assert named == (set(prunings.EMPTIED) - {"kl_upper"} if now.run_id == run_id else set())
    with store.read() as connection:
        assert connection.execute(prunings.rows_of_run(scores, run_id)).first() is None
    ours = [row for row in before["units"] if row.run_id == run_id]
    assert removed.answers == len(ours)
    assert removed.scores == len(before["scores"]) - len(after["scores"])
    assert removed.nbytes > sum(len(row.text.encode()) + len(row.token_ids) for row in ours)
    assert {"sealed", "verdicts", "decisions"} == APPEND_ONLY
    assert prune.to_prune(store, EVER) == ([], 1)
    assert list(seals.broken(store)) == []


def test_nothing_is_decided_by_a_pruned_run(store, pruned):
    before = everything(store)
    seen = queries.run_summary(store, pruned).verdict("int8").sha256
    for act in (
        lambda: decide_again(store.url, pruned, None),
        lambda: rescore(store.url, pruned, None),
        lambda: runs.evidence(store, pruned),
        lambda: decisions.append(
            store, pruned, "int8", decisions.Said(action="approve", name="A", reason="b"), decisions.Seen(seen)
        ),
        lambda: prune.prune_run(store, pruned),
    ):
        with pytest.raises(EvidencePruned, match=r"was pruned on \d{4}-\d\d-\d\d: .* so it is invalid"):
            act()
    assert EvidencePruned.exit == Exit.INFRASTRUCTURE
    assert everything(store) == before
    decisions.append(store, pruned, "int8", decisions.Said(action="block", name="A", reason="b"), decisions.Seen(seen))


def test_scores_and_an_approval_that_were_begun_before_are_not_stored(store, run_id, monkeypatch):
    last, seen = scorings.read(store, run_id), queries.run_summary(store, run_id).verdict("int8").sha256
    prune.prune_run(store, run_id)
    empty = everything(store)
    with pytest.raises(EvidencePruned):
        scorings.add(store, run_id, last.number, turned(last, "exact_match/3"))
    monkeypatch.setattr(decisions, "check_evidence", lambda *_: None)
    with pytest.raises(EvidencePruned):
        decisions.append(
            store, run_id, "int8", decisions.Said(action="approve", name="A", reason="b"), decisions.Seen(seen)
        )
    assert everything(store) == empty


def test_a_verdict_and_replies_that_were_begun_before_are_not_stored(store, run_id):
    decided = decide_again(store.url, run_id, None)
    prune.prune_run(store, run_id)
    empty = everything(store)
    with pytest.raises(EvidencePruned):
        runs.add_verdicts(store, run_id, [replace(one, reasons=("x",)) for one in decided.verdicts], PLAN.policy)
    with pytest.raises(EvidencePruned):
        judgements.add(store, run_id, "judge/1 a", [REPLY])
    assert everything(store) == empty


def test_a_false_record_hides_no_night_and_lets_no_run_go(store):
    ids = [make_run(store, PLAN) for _ in range(3)]
    with store.write() as connection:
        false = prunings.Pruning(run_id=ids[1], created_at=plain.now(), rest_sha256="0" * 64)
        connection.execute(insert(sealed), sealed_row("pruning", false, run_id=ids[1]))
    for look in (
        lambda: queries.watched(store, ids[-1]),
        lambda: prune.to_prune(store, EVER),
        lambda: prune.prune_run(store, ids[0]),
    ):
        with pytest.raises(IntegrityError, match=f"run {ids[1]} is recorded as pruned"):
            look()


def test_cases_of_a_pruned_run_that_changed_or_went_are_damage(store, pruned):
    assert seals.broken_in_run(store, pruned) == []
    tamper(store, f"update cases set body_json = '{{}}' where case_hash = ({A_CASE})", run=pruned)
    [changed] = seals.broken_in_run(store, pruned)
    assert "case" in changed
    tamper(store, f"delete from cases where case_hash = ({A_CASE})", run=pruned)
    [gone] = seals.broken_in_run(store, pruned)
    assert "which was asked, is not in the store" in gone


def test_every_report_and_list_tells_it_in_one_line(store, run_id, capsys):
    word = queries.run_summary(store, run_id).verdict("int8").verdict.word
    prune.prune_run(store, run_id)
    report = load_report(store.url, run_id)
    [told] = {verdict.reasons[0] for verdict in report.verdicts}
    assert re.match(r"pruned on \d{4}-\d\d-\d\d: ", told)
    assert f"was '{word}'" in report.verdicts[0].reasons[1]
    assert {verdict.word for verdict in report.verdicts} == {"invalid"}
    assert report.exit == Exit.INFRASTRUCTURE
    date = told[:20]
    for form in FORMS:
        assert date in rendered(report, form).replace("\\", ""), form
    print_runs(queries.list_runs(store), 2)
    assert capsys.readouterr().out.count(date) == 1
    assert shown_nights(store, run_id).pruned == date
    assert queries.latest_run(store) != run_id
    assert shown_nights(store, queries.latest_run(store)).pruned == ""


def test_a_pruned_run_without_a_verdict_tells_it_too(store):
    bare, _ = make_run(store, PLAN), make_run(store, PLAN)
    tamper(store, "delete from verdicts")
    prune.prune_run(store, bare)
    assert any("pruned on" in remark for remark in load_report(store.url, bare).remarks)


def test_a_model_that_is_put_back_as_it_was_is_not_answered_for_by_a_pruned_run(store):
    old = make_run(store, PLAN)
    make_run(store, replace(PLAN, key="0" * 64))
    assert queries.newest_complete(store, PLAN.key)[0] == old
    prune.prune_run(store, old)
    assert queries.newest_complete(store, PLAN.key) is None


def test_a_copy_made_before_has_all_and_a_copy_made_after_is_pruned_as_well(store, run_id, tmp_path):
    seen = runs.evidence(store, run_id, answers=True)
    assert copy_store(store.url, f"sqlite:///{tmp_path / 'before.db'}").broken == ()
    prune.prune_run(store, run_id)
    assert copy_store(store.url, f"sqlite:///{tmp_path / 'after.db'}").broken == ()
    with open_store(f"sqlite:///{tmp_path / 'before.db'}") as before:
        assert runs.evidence(before, run_id, answers=True) == seen
    with open_store(f"sqlite:///{tmp_path / 'after.db'}") as after, pytest.raises(EvidencePruned):
        runs.evidence(after, run_id)


def _is_damaged(store, run_id):
    """Whether the run is damage, and not just pruned."""
    try:
        return bool(runs.evidence(store, run_id).integrity)
    except IntegrityError:
        return True


UNITS_OF = "unit_id in (select unit_id from units where run_id = :run)"
A_CASE = "select min(case_hash) from units where run_id = :run"
DAMAGE = {
    "a row of the record": "update sealed set at = '2020' where kind = 'pruning' and run_id = :run",
    "no record": "delete from sealed where kind = 'pruning' and run_id = :run",
    "a text": "update units set text = 'yes' where run_id = :run",
    "a score": "insert into scores (unit_id, metric, scoring, value, error_type, reason, scorer) "
               "select min(unit_id), 'exact_match', 0, 1.0, '', '', 'x' from units where run_id = :run",
    "a seal": "update units set sha256 = '0' where run_id = :run",
    "a count": "update units set answer_tokens = 1 where run_id = :run",
    "a unit": "delete from units where unit_id = (select max(unit_id) from units where run_id = :run)",
    "an evalset": "update evalsets set metrics_json = '[]' where run_id = :run",
    "a scoring": "delete from sealed where kind = 'scoring' and run_id = :run",
}  # fmt: skip


@pytest.mark.parametrize("damage", DAMAGE)
def test_what_is_changed_in_a_pruned_run_is_damage(store, pruned, damage):
    tamper(store, DAMAGE[damage], run=pruned)
    assert _is_damaged(store, pruned)
    assert any(line.startswith(f"run {pruned}: ") for line in seals.broken(store))


def test_answers_that_are_missing_without_a_record_are_damage_and_so_is_a_record_beside_them(store, run_id):
    with store.write() as connection:
        prunings.add(connection, run_id)  # whole by itself: its hashes can be made by anybody
    with pytest.raises(IntegrityError, match="is recorded as pruned, but what is stored of it is not"):
        runs.evidence(store, run_id)
    tamper(store, "delete from sealed where kind = 'pruning'", f"delete from scores where {UNITS_OF}", run=run_id)
    assert runs.evidence(store, run_id).integrity
    with pytest.raises(IntegrityError, match="Nothing of it was pruned"):
        prune.prune_run(store, run_id)


def test_a_run_that_is_damaged_or_under_way_is_not_pruned(store, run_id):
    tamper(store, f"update scores set value = 0.5 where {UNITS_OF} and scoring = 0", run=run_id)
    before = everything(store)
    with pytest.raises(IntegrityError, match="Nothing of it was pruned"):
        prune.prune_run(store, run_id)
    running = make_run(store, make_plan(cases=3, wrong={"int8": 0.0}), jobs=1)
    with pytest.raises(UsageError, match="only complete runs can be pruned"):
        prune.prune_run(store, running)
    with pytest.raises(UsageError, match="no run"):
        prune.prune_run(store, "20200101-000000-abcdef")
    assert [row for row in everything(store)["units"] if row.run_id != running] == before["units"]


def test_a_pruning_that_is_stopped_changes_nothing(store, run_id, monkeypatch):
    before = everything(store)

    def stopped(*_):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(prunings, "add", stopped)
        with pytest.raises(KeyboardInterrupt):
            prune.prune_run(store, run_id)
    assert everything(store) == before
    assert runs.evidence(store, run_id).integrity == ()


def decide(store, run_id, action):
    stored = queries.run_summary(store, run_id).verdict("int8")
    with store.read() as connection:
        made = [one.hash for one in decisions.chain(connection) if one.run_id == run_id]
    decisions.append(
        store, run_id, "int8", said(stored, action), decisions.Seen(stored.sha256, made[-1] if made else None)
    )


def test_the_newest_the_approved_and_the_runs_of_the_trend_stay(store):
    """The gate itself approves none of these."""
    ids = [make_run(store, PLAN) for _ in range(6)]
    assert {queries.run_summary(store, one).verdict("int8").verdict.word for one in ids}.isdisjoint({"approve"})

    def may_go():
        return [one.run_id for one in prune.to_prune(store, EVER)[0]]

    assert prune.to_prune(store, "2000") == ([], 0)
    assert may_go() == ids[:5]
    decide(store, ids[2], "approve")
    assert may_go() == ids[:2]
    before = queries.watched(store, ids[-1])
    for one in ids[2:]:
        with pytest.raises(UsageError, match="cannot be pruned"):
            prune.prune_run(store, one)
    for one in ids[:2]:
        prune.prune_run(store, one)
    assert [one.run_ids for one in queries.watched(store, ids[-1]) if one.arm == "int8"] == [
        one.run_ids for one in before if one.arm == "int8"
    ]
    decide(store, ids[4], "approve")
    assert may_go() == ids[2:4]
    decide(store, ids[4], "block")
    assert may_go() == []
    with store.read() as connection:
        assert retention.in_force(connection)[ids[-1]] == "the newest of its gate file"


def test_room_that_was_freed_goes_back_to_the_disk_or_it_is_told_why_not(store, monkeypatch):
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


def test_the_command_prunes_with_yes_and_tells_what_went(tmp_path):
    url = f"sqlite:///{tmp_path / 'q.db'}"
    with open_store(url) as store:
        damaged, first, _ = (make_run(store, PLAN) for _ in range(3))
        tamper(store, f"update scores set value = 0.5 where {UNITS_OF}", run=damaged)

    def prune_by(*words: str) -> tuple[int, str]:
        done = qualgate("db", "prune", *words, "--store", url)
        return done.returncode, done.stdout + done.stderr

    assert prune_by()[0] == Exit.USAGE
    assert prune_by("--older-than", "1")[1] == "No run to prune: no other complete run ended more than 1 days ago.\n"
    code, said = prune_by("--older-than", "0")
    assert (code, f"{first}: 24 answers, " in said) == (Exit.USAGE, True)
    assert "cannot be undone, and nobody can be asked here: give --yes" in said
    code, said = prune_by("--older-than", "0", "--yes")
    assert code == Exit.INTEGRITY
    assert "1 older run stays" in said
    assert f"run {damaged}: " in said
    assert re.search(rf"{first}: 24 answers, \d+ scores, [\d,]+ bytes removed\n", said)
    assert re.search(r"1 of 2 runs pruned, [\d,]+ bytes removed\n", said)
    assert "came back to the disk" in said
    for act in (("gate", "--run", first), ("rescore", first)):
        done = qualgate(*act, "--store", url)
        assert done.returncode == Exit.INFRASTRUCTURE, act
        assert "pruned on" in done.stderr
    assert "pruned on" in qualgate("report", "--run", first, "--format", "markdown", "--store", url).stdout
    assert "pruned on" in qualgate("trend", "--run", first, "--store", url).stderr


def test_a_run_that_another_process_pruned_or_changed_meanwhile_does_not_end_the_rest(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'q.db'}"
    with open_store(url) as store:
        first, other, last, _ = (make_run(store, PLAN) for _ in range(4))
    plainly = prune.prune_run

    def meanwhile(store, run_id):
        if run_id == first:
            plainly(store, run_id)
        if run_id == other:
            raise UsageError(f"run {run_id} was changed by another process meanwhile. Prune again.")
        return plainly(store, run_id)

    monkeypatch.setattr(prune, "prune_run", meanwhile)
    done = qualgate("db", "prune", "--older-than", "0", "--yes", "--store", url)
    assert done.returncode == Exit.APPROVE, done.stderr
    assert f"run {first} was pruned on" in done.stdout
    assert f"run {other} was changed" in done.stdout
    assert f"{last}: 24 answers, " in done.stdout
    assert re.search(r"1 of 3 runs pruned, ", done.stdout)


def test_a_person_at_a_terminal_is_asked(tmp_path, monkeypatch):
    url = f"sqlite:///{tmp_path / 'q.db'}"
    with open_store(url) as store:
        first, _ = (make_run(store, PLAN) for _ in range(2))
        for answer in (False, True):
            monkeypatch.setattr("qualgate.cli.db.sys.stdin", SimpleNamespace(isatty=lambda: True))
            monkeypatch.setattr("typer.confirm", lambda _, answer=answer: answer)
            done = qualgate("db", "prune", "--older-than", "0", "--store", url)
            assert done.returncode == 0
            assert f"qualgate db copy {url} TO" in done.stdout
            with store.read() as connection:
                assert (first in prunings.pruned_runs(connection)) is answer
