"""Arrays in a store take half the room where every number is a float32, and nobody who reads them can tell."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, update

from qualgate.store import runs, seal, seals
from qualgate.store.columns import Floats, narrow, wide, with_nul, without_nul
from qualgate.store.copy import copy_store
from qualgate.store.database import open_store
from qualgate.store.tables import units
from tests.store.made import make_plan, make_results

ODD = (0.0, -0.0, float("inf"), float("-inf"), 2.0**-149, 3.4028234663852886e38, 3.5e38, 0.1, 5e-324)
PLAN = make_plan(cases=3, wrong={"int8": 0.0})
FLOATS = [column for column in units.c if isinstance(column.type, Floats)]


@given(st.lists(st.one_of(st.floats(width=32), st.floats(), st.sampled_from(ODD)), max_size=40))
def test_an_array_comes_back_to_the_bit_and_takes_no_more_room(numbers):
    blob = seal.pack_floats(numbers)
    kept = narrow(blob)
    assert wide(kept) == blob
    assert narrow(kept) == kept  # a row that was made narrow is bound once more by a database
    assert len(kept) <= len(blob)


@given(st.lists(st.floats(width=32, allow_nan=False), min_size=1))
def test_numbers_of_an_engine_take_half_the_room(numbers):
    assert len(narrow(seal.pack_floats(numbers))) == 4 * len(numbers) + 1


@given(st.binary(max_size=64))
def test_bytes_that_are_no_array_are_never_taken_for_another_one(blob):
    assert wide(blob) == blob or (len(wide(blob)) == 2 * len(blob) - 2 and wide(narrow(wide(blob))) == wide(blob))


def as_float32(numbers):
    return struct.unpack(f"<{len(numbers)}f", struct.pack(f"<{len(numbers)}f", *numbers))


def made(store):
    """A run whose log-probs and margins are an engine's."""
    run_id = runs.begin(store, PLAN).run_id
    for result, scored in make_results(PLAN):
        said = (replace(one, logprobs=as_float32(one.logprobs), margins=as_float32(one.margins))
                for one in result.completions)  # fmt: skip
        runs.record(store, run_id, replace(result, completions=tuple(said)), scored)
    runs.finish(store, run_id, (), complete=True)
    return run_id


def in_the_file(store):
    with store.read() as connection:
        asked = f"SELECT {', '.join(column.name for column in FLOATS)} FROM units ORDER BY unit_id"
        return [tuple(row) for row in connection.exec_driver_sql(asked)]


def read(store):
    with store.read() as connection:
        return [tuple(row) for row in connection.execute(select(*FLOATS).order_by(units.c.unit_id))]


def test_a_run_s_arrays_are_narrow_in_the_store_and_read_as_they_were_recorded(store):
    run_id = made(store)
    logprobs = [seal.pack_floats(one.logprobs) if one.logprobs else b""
                for result in _results() for one in result.completions]  # fmt: skip
    assert sorted(row[0] for row in read(store)) == sorted(logprobs)
    narrowed = [len(kept[0]) < len(plain[0]) for kept, plain in zip(in_the_file(store), read(store), strict=True)]
    assert any(narrowed)
    assert runs.evidence(store, run_id).integrity == ()


def _results():
    for result, _ in make_results(PLAN):
        said = (replace(one, logprobs=as_float32(one.logprobs)) for one in result.completions)
        yield replace(result, completions=tuple(said))


def test_rows_of_an_older_version_mix_with_new_ones_and_their_seals_hold(store):
    run_id = made(store)
    before, seen = read(store), runs.evidence(store, run_id)
    with store.write() as connection:
        ids = connection.scalars(select(units.c.unit_id).order_by(units.c.unit_id)).all()
        for unit_id, row in list(zip(ids, before, strict=True))[::2]:
            mark = "%s" if connection.dialect.name == "postgresql" else "?"
            named = ", ".join(f"{column.name} = {mark}" for column in FLOATS)
            connection.exec_driver_sql(f"UPDATE units SET {named} WHERE unit_id = {unit_id}", row)
    assert read(store) == before
    assert runs.evidence(store, run_id) == seen
    assert seen.integrity == ()


def test_a_number_that_is_changed_in_a_narrow_array_breaks_its_seal(store):
    run_id = made(store)
    with store.write() as connection:
        connection.execute(update(units).values(logprobs=seal.pack_floats([0.5])))
    assert len(in_the_file(store)[0][0]) == 5
    assert any("not what was recorded" in fault for fault in runs.evidence(store, run_id).integrity)


def test_a_store_that_is_copied_holds_what_is_read(store, tmp_path):
    made(store)
    before = read(store)
    url = f"sqlite:///{tmp_path / 'copy.db'}"
    assert copy_store(store.url, url).broken == ()
    with open_store(url) as copied:
        assert read(copied) == before
        assert in_the_file(copied) == in_the_file(store)
        assert list(seals.broken(copied)) == []


@pytest.mark.parametrize("said", ["", "\0", "\1", "\1\0", "\0\1", "\0\0\1\1\2\1", "a\0b", "\1\1", "\1\2"])
def test_text_that_a_server_cannot_hold_is_written_as_what_it_can(said):
    assert "\0" not in without_nul(said)
    assert with_nul(without_nul(said)) == said
    assert (without_nul(said) < without_nul("\1")) == (said < "\1")
