"""A store that is to move and cannot as it is: it is named, not where it goes, and no broken seal stays untold."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import event

from qualgate.errors import IntegrityError
from qualgate.store import copy, loads, prune, scorings, seals
from qualgate.store.database import open_store
from qualgate.store.nights import add_night
from tests.store.conftest import DATABASES, copy_of, new_url
from tests.store.made import make_plan, make_run
from tests.store.tampering import tamper
from tests.store.test_nights import NIGHT
from tests.store.test_scorings import turned


@pytest.mark.parametrize("to", DATABASES)
@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("update units set text = cast(x'ff41' as text) where unit_id = 7", "of the row with unit_id 7 is no UTF-8"),
        ("update scores set value = 'much' where unit_id = 7", "of the row with unit_id 7, .* is text"),
        ("delete from units where unit_id = 7", "some of its scores refer to missing rows"),
        ("delete from runs", "some of its arms refer to missing rows"),
    ],
)
def test_a_store_that_cannot_be_read_whole_is_named_and_the_other_stays_empty(
    tmp_path, full_store, filled, to, damage, said
):
    target = new_url(to, tmp_path)
    with open_store(filled[0]) as store:
        tamper(store, damage)
    with pytest.raises(IntegrityError, match=rf"{filled[0]} is damaged.*{said}"):
        copy.copy_store(filled[0], target)
    assert copy.copy_store(full_store[0], target).broken == ()


@pytest.fixture(scope="module")
def sealed(full_store, tmp_path_factory) -> str:
    """A store with a seal of every kind, to be copied."""
    folder = tmp_path_factory.mktemp("sealed")
    url, run_id = copy_of(full_store[0], folder), full_store[1]
    with open_store(url) as store:
        loads.add(store, "gate.yaml", "version: 1\n", "f" * 64, 10, {})
        add_night(store, replace(NIGHT, run_id=run_id))
        for before in (0, 1):
            scorings.add(store, run_id, before, turned(scorings.read(store, run_id), f"exact_match/{before + 2}"))
        assert list(seals.broken(store)) == []
    return url


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        ("update verdicts set word = 'approve' where word <> 'approve'", "the verdict on 'int2-g32'"),
        ("update verdicts set body_json = replace(body_json, 'int8', 'int7')", "the verdict on 'int8'"),
        ("update sealed set body_json = '{}' where kind = 'judgement'", "what the judge replied"),
        ("update sealed set body_json = '{}' where kind = 'load'", "load load-"),
        ("update sealed set run_id = null where kind = 'night'", "night support: "),
        ("update scores set value = 1 - value where scoring = 1", "the scores of scoring 1 "),
    ],
)
def test_every_seal_that_does_not_hold_is_told(tmp_path, sealed, damage, said):
    with open_store(copy_of(sealed, tmp_path)) as store:
        tamper(store, damage)
        assert any(said in line for line in seals.broken(store))


def test_a_store_whose_seals_do_not_hold_is_moved_as_it_is_and_that_is_told(tmp_path, filled):
    url, run_id = filled
    with open_store(url) as store:
        tamper(store, "update units set text = 'changed' where unit_id = 1")
    [broken] = copy.copy_store(url, f"sqlite:///{tmp_path / 'to.db'}").broken
    assert run_id in broken


@pytest.mark.parametrize(
    "damage",
    [
        "update runs set gate_file = 'another'",
        "update arms set spec_json = '{}'",
        "update sealed set at = '2020' where kind = 'pruning'",
    ],
)
def test_of_a_run_whose_answers_were_pruned_the_seals_that_are_left_are_told(tmp_path, file, damage):
    plan = make_plan(cases=2, wrong={"int8": 0.0})
    with open_store(file) as store:
        run_id = make_run(store, plan)
        make_run(store, plan)  # the newest of a gate file stays
        prune.prune_run(store, run_id)
        assert list(seals.broken(store)) == []
        tamper(store, damage)
        assert any(line.startswith(f"run {run_id}: ") for line in seals.broken(store))


def test_the_source_is_let_go_before_what_was_copied_is_committed(tmp_path, filled, monkeypatch):
    target, ended = f"sqlite:///{tmp_path / 'to.db'}", []

    def watched(url: str, create: bool = True):
        store = open_store(url, create=create)
        event.listen(store.engine, "commit", lambda connection: ended.append(url))
        return store

    monkeypatch.setattr(copy, "open_store", watched)
    copy.copy_store(filled[0], target)
    assert ended[:2] == [filled[0], target]
