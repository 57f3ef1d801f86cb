"""A store that moves: every row and seal, either way, and the same report to the byte."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import Table, select, text

from qualgate.errors import IntegrityError, UsageError
from qualgate.records import Judgement
from qualgate.report.formats import rendered
from qualgate.report.summary import load_report
from qualgate.store import copy, decisions, judgements, queries, runs
from qualgate.store.database import open_store
from qualgate.store.schema import metadata
from qualgate.store.tables import units
from tests.postgresql import server
from tests.store.made import make_plan, make_results, make_run
from tests.store.tampering import tamper

PLAN = make_plan(cases=6, wrong={"int8": 0.0, "int2-g32": 0.3})
HOSTILE = (
    "lone \ud800, NUL \0, its stand-in \1 \1\1 \1\2, bidi \u202e, 漢字 🙂, a'\"; drop table runs; --\r\n\x7f\uffff"
)
FORMS = ("json", "markdown", "html", "sarif", "junit")


def fill(url: str) -> str:
    """Two runs, one of hostile texts, with a decision and a judge's reply; the first one's id."""
    with open_store(url) as store:
        run_id = make_run(store, PLAN)
        odd = make_plan(cases=2, wrong={"int8": 0.0}, seed=5)
        other = runs.begin(store, odd).run_id
        for result, scored in make_results(odd):
            said = tuple(replace(one, text=HOSTILE) for one in result.completions)
            marked = {key: tuple(replace(one, reason=HOSTILE, extracted=HOSTILE) for one in each)
                      for key, each in scored.items()}  # fmt: skip
            runs.record(store, other, replace(result, completions=said), marked)
        seen = queries.run_summary(store, run_id).verdict("int8").sha256
        decisions.append(store, run_id, "int8", "block", name=HOSTILE, reason=HOSTILE, verdict_sha256=seen)
        reply = Judgement(variant="int8", evalset="s", case_id="c", repeat=0, swapped=False, asked="f" * 64,
                          reply=HOSTILE, error="", served="m")  # fmt: skip
        judgements.add(store, other, "judge/1", [reply])
    return run_id


def everything(url: str) -> dict[str, list[tuple[object, ...]]]:
    def rows(table: Table) -> list[tuple[object, ...]]:
        return [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))]

    with open_store(url, create=False) as store, store.read() as connection:
        return {table.name: rows(table) for table in metadata.sorted_tables}


@pytest.fixture
def file(tmp_path):
    return f"sqlite:///{tmp_path / 'q.db'}"


def test_a_store_goes_to_a_server_and_back_and_its_reports_stay_the_same_bytes(tmp_path, file):
    run_id, there, back = fill(file), server().new_database(), f"sqlite:///{tmp_path / 'back.db'}"
    done = copy.copy_store(file, there)
    assert done == copy.copy_store(there, back)
    assert done.runs == 2
    assert done.rows == sum(map(len, everything(file).values()))
    assert done.broken == ()
    assert everything(file) == everything(there) == everything(back)
    reports = [load_report(url, run_id) for url in (file, there, back)]
    for form in FORMS:
        first, *others = (rendered(report, form) for report in reports)
        assert others == [first, first], form
    with open_store(there) as store:
        again = make_run(store, make_plan(cases=1, wrong={"int8": 0.0}, seed=9))  # numbers go on where they were
        assert runs.evidence(store, again).integrity == ()
        with store.read() as connection:
            found = connection.scalars(select(units.c.text).where(units.c.text.contains("漢"))).all()
        assert set(found) == {HOSTILE.replace("\ud800", "\\ud800")}


def test_a_target_that_holds_anything_is_refused_untouched(tmp_path, file):
    fill(file)
    taken = f"sqlite:///{tmp_path / 'taken.db'}"
    with open_store(taken) as store:
        make_run(store, make_plan(cases=1, wrong={"int8": 0.0}))
    before = everything(taken)
    for target in (taken, file):
        with pytest.raises(UsageError, match="holds rows already"):
            copy.copy_store(file, target)
    assert everything(taken) == before
    with pytest.raises(UsageError, match="no store yet"):
        copy.copy_store(f"sqlite:///{tmp_path / 'none.db'}", taken)


@pytest.mark.parametrize("to", ["file", "server"])
def test_a_copy_that_fails_on_the_way_leaves_an_empty_store_to_copy_to_again(tmp_path, file, to, monkeypatch):
    fill(file)
    target = f"sqlite:///{tmp_path / 'to.db'}" if to == "file" else server().new_database()
    honest = copy._copy

    def lossy(table, source_url, given, taken):
        rows = honest(table, source_url, given, taken)
        if table.name == "scores":
            taken.execute(text("delete from scores where unit_id = 1"))
        return rows

    monkeypatch.setattr(copy, "_copy", lossy)
    with pytest.raises(IntegrityError, match=r"scores: the row \(1, .*does not come back"):
        copy.copy_store(file, target)
    assert not any(everything(target).values())
    monkeypatch.setattr(copy, "_copy", honest)
    assert copy.copy_store(file, target).broken == ()


def test_a_store_whose_seals_do_not_hold_is_moved_as_it_is_and_that_is_told(tmp_path, file):
    run_id = fill(file)
    with open_store(file) as store:
        tamper(store, "update units set text = 'changed' where unit_id = 1")
    done = copy.copy_store(file, f"sqlite:///{tmp_path / 'to.db'}")
    assert len(done.broken) == 1
    assert run_id in done.broken[0]
