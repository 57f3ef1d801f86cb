"""A store that moves: every row and seal, either way, and the same report to the byte."""

from __future__ import annotations

import pytest
from sqlalchemy import Table, select, text

from qualgate.errors import IntegrityError, UsageError
from qualgate.report.formats import rendered
from qualgate.report.summary import load_report
from qualgate.store import copy, runs
from qualgate.store.database import open_store
from qualgate.store.schema import metadata
from qualgate.store.tables import units
from tests.store.conftest import DATABASES, HOSTILE, new_url
from tests.store.made import make_plan, make_run

FORMS = ("json", "markdown", "html", "sarif", "junit")


def everything(url: str) -> dict[str, list[tuple[object, ...]]]:
    def rows(table: Table) -> list[tuple[object, ...]]:
        return [tuple(row) for row in connection.execute(select(table).order_by(*table.primary_key))]

    with open_store(url, create=False) as store, store.read() as connection:
        return {table.name: rows(table) for table in metadata.sorted_tables}


@pytest.mark.parametrize("to", DATABASES)
def test_a_store_goes_elsewhere_and_back_and_its_reports_stay_the_same_bytes(tmp_path, filled, to):
    (file, run_id), there, back = filled, new_url(to, tmp_path), f"sqlite:///{tmp_path / 'back.db'}"
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
            found = {one for one in connection.scalars(select(units.c.text)) if "漢" in one}
        assert found == {HOSTILE.replace("\ud800", "\\ud800")}


def test_a_target_that_holds_anything_is_refused_untouched(tmp_path, filled):
    file, _ = filled
    taken = f"sqlite:///{tmp_path / 'taken.db'}"
    with open_store(taken) as store:
        make_run(store, make_plan(cases=1, wrong={"int8": 0.0}))
    before = everything(taken)
    for target in (taken, file):
        with pytest.raises(UsageError, match="already holds rows"):
            copy.copy_store(file, target)
    assert everything(taken) == before
    with pytest.raises(UsageError, match="no store yet"):
        copy.copy_store(f"sqlite:///{tmp_path / 'none.db'}", taken)


@pytest.mark.parametrize("to", DATABASES)
def test_a_copy_that_fails_on_the_way_leaves_an_empty_store_to_copy_to_again(tmp_path, filled, to, monkeypatch):
    file, target, honest = filled[0], new_url(to, tmp_path), copy._copy

    def lossy(table, source_url, given, taken):
        rows = honest(table, source_url, given, taken)
        if table.name == "scores":
            taken.execute(text("delete from scores where unit_id = 1"))
        return rows

    monkeypatch.setattr(copy, "_copy", lossy)
    with pytest.raises(IntegrityError, match=r"scores: the row \(1, .*was read back changed"):
        copy.copy_store(file, target)
    assert not any(everything(target).values())
    monkeypatch.setattr(copy, "_copy", honest)
    assert copy.copy_store(file, target).broken == ()
