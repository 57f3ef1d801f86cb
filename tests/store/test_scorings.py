"""A run scored again, on every database: beside the recorded scores, whole, and the newest counts."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import delete, select, update

from qualgate.errors import IntegrityError, UsageError
from qualgate.store import postgresql, queries, runs, scorings
from qualgate.store.rescored_sets import rescored_sets
from qualgate.store.tables import scores, units
from tests.store.conftest import SMALL
from tests.store.made import make_run
from tests.store.tampering import tamper


@pytest.fixture
def store(recorded):
    return recorded[0]


@pytest.fixture
def run_id(recorded):
    return recorded[1]


def turned(last: scorings.Scoring, version: str) -> dict:
    """Every score the other way round, by a scorer of this version."""
    return {
        answer.unit_id: tuple(
            replace(one, value=1 - one.value, verdict=not one.verdict, scorer=version) for one in answer.scores
        )
        for answer in last.answers
    }


def test_the_newest_scoring_counts_and_the_recorded_one_stays(store, run_id):
    recorded = runs.evidence(store, run_id)
    for number in (1, 2):
        last = scorings.read(store, run_id)
        assert scorings.add(store, run_id, number - 1, turned(last, f"exact_match/{number + 1}")) == number
        found = runs.evidence(store, run_id)
        assert found.integrity == ()
        assert {name for unit in found.baseline.units for name in unit.scorers.values()} == {
            f"exact_match/{number + 1}"
        }
    assert runs.evidence(store, run_id, scoring=0) == recorded
    turned_once, turned_twice = (runs.evidence(store, run_id, scoring=n).baseline.units for n in (1, 2))
    for was, once, twice in zip(recorded.baseline.units, turned_once, turned_twice, strict=True):
        assert was.values == twice.values
        assert was.values["exact_match"] == 1 - once.values["exact_match"]


def test_scorings_in_another_order_are_no_evidence(store, run_id):
    for number in (1, 2):
        scorings.add(store, run_id, number - 1, turned(scorings.read(store, run_id), f"exact_match/{number + 1}"))
    tamper(store, "UPDATE sealed SET sealed_id = sealed_id + 100 WHERE kind = 'scoring' AND part = '1'")
    with pytest.raises(IntegrityError, match="later scorings"):
        runs.evidence(store, run_id)


def test_metrics_and_references_of_a_scoring_are_sealed_with_it_and_read_back(store, run_id):
    last, recorded = scorings.read(store, run_id), runs.evidence(store, run_id)
    item, case = last.evalsets[0], last.evalsets[0].cases[0]
    key = replace(case, body={**case.body, "answer": "other", "references": ["other", "1"], "tags": ["new"]})
    other = replace(item, sha256="f" * 64, metrics=("contains",), cases=(key, *item.cases[1:]))
    scored = {one.unit_id: tuple(replace(score, metric="contains") for score in one.scores[:1]) for one in last.answers}
    changed = rescored_sets(last.recorded, (other, *last.evalsets[1:]))
    assert scorings.add(store, run_id, 0, scored, changed) == 1
    found, now = scorings.read(store, run_id), runs.evidence(store, run_id)
    assert (found.recorded, found.evalsets[0]) == (last.recorded, other)
    assert (now.integrity, now.metrics[item.name]) == ((), ("contains",))
    assert {"answer", "references"} <= {*now.references[item.name, case.id]}
    again = now.scored_again
    assert (again.corrected, again.retagged) == (((item.name, case.id),), (item.name,))
    assert again.metrics[item.name][1] == ("contains",)
    assert runs.evidence(store, run_id, scoring=0) == recorded
    line = queries.run_summary(store, run_id).scorings[0]
    assert line.corrected == (f"{item.name}/{case.id}",)
    assert queries.list_runs(store)[0].scored_again == line.created_at


def test_others_write_while_a_scoring_is_made_and_sealed(store, run_id, monkeypatch):
    sealed, written = scorings._digest, []

    def beside(*given):
        with store.write() as connection:  # would wait for itself, were the store held
            connection.execute(update(units).where(units.c.unit_id < 0).values(error=""))
        written.append(True)
        return sealed(*given)

    last = scorings.read(store, run_id)
    with monkeypatch.context() as slow:
        slow.setattr(postgresql, "BUSY_SECONDS", 0.5)
        slow.setattr(scorings, "_digest", beside)
        assert scorings.add(store, run_id, 0, turned(last, "exact_match/2")) == 1
    assert written
    assert runs.evidence(store, run_id).integrity == ()


def test_the_cases_and_answers_are_those_of_the_run(store, run_id):
    found = scorings.read(store, run_id)
    kept = [replace(item, path="") for item in SMALL.evalsets]
    assert list(found.evalsets) == kept
    assert {answer.key for answer in found.answers} == set(SMALL.expected)
    flips = queries.flips(store, run_id, "int2-g32")
    said = {answer.key: answer.text for answer in found.answers}
    for flip in flips:
        [text] = {said[key] for key in said if key.arm == "int2-g32" and key.case_id == flip.case_id}
        assert text == flip.variant


def test_another_process_that_was_faster_is_not_overwritten(store, run_id):
    scored = {answer.unit_id: answer.scores for answer in scorings.read(store, run_id).answers}
    assert scorings.add(store, run_id, 0, scored) == 1
    with pytest.raises(UsageError, match="another process"):
        scorings.add(store, run_id, 0, scored)
    with pytest.raises(UsageError, match="every answer"):
        scorings.add(store, run_id, 1, dict(list(scored.items())[:-1]))
    assert scorings.read(store, run_id).number == 1


def test_an_unfinished_run_is_refused(store):
    run_id = make_run(store, SMALL, jobs=2)
    with pytest.raises(UsageError, match=r"is not complete \(running\)"):
        scorings.read(store, run_id)


def test_units_that_a_settled_verdict_made_needless_are_not_scored_again(store, run_id):
    with store.write() as connection:
        last = connection.execute(select(units.c.unit_id).order_by(units.c.unit_id.desc()).limit(1)).scalar()
        connection.execute(delete(scores).where(scores.c.unit_id == last))
        settled = dict.fromkeys(("text", "finish_reason", "token_ids", "sha256"))
        connection.execute(update(units).where(units.c.unit_id == last).values(status="settled", **settled))
    found = scorings.read(store, run_id)
    assert len(found.answers) == len(SMALL.expected) - 1
    assert scorings.add(store, run_id, 0, turned(found, "exact_match/2")) == 1
