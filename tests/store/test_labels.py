"""People's labels on answers: the newest counts, the next run shows them, and nothing that decides rests on them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sqlalchemy import text

from qualgate.errors import IntegrityError, QualgateError, UsageError
from qualgate.records import UnitKey
from qualgate.records.identity import sha256_text
from qualgate.store import labels, prune, queries, runs
from qualgate.store.evidence_seal import evidence_seal
from qualgate.store.labels import (
    COMMENT,
    COMMENTS_SHOWN,
    LONGEST_NAME,
    LONGEST_NOTE,
    NO_LABEL,
    WORDS,
    CaseLabels,
    set_label,
)
from qualgate.store.prunings import EvidencePruned
from qualgate.store.seals import broken
from tests.store import made as plans
from tests.store.conftest import HOSTILE
from tests.store.made import make_plan, make_run
from tests.store.tampering import tamper

VARIANT = "int2-g32"


@pytest.fixture
def store(recorded):
    return recorded[0]


@pytest.fixture
def run_id(recorded):
    return recorded[1]


@pytest.fixture
def unit(store, run_id) -> UnitKey:
    """A changed answer."""
    evalset, case_id, repeat = min(queries.flipped_answers(store, run_id, VARIANT))
    return UnitKey(VARIANT, evalset, case_id, repeat)


def beside(store, run_id, unit) -> CaseLabels:
    case = (unit.evalset, unit.case_id, unit.repeat)
    return labels.labels_of_cases(store, run_id, unit.arm, [case]).get(case, CaseLabels())


def test_the_newest_label_of_an_answer_counts_and_all_come_back_as_they_were_set(store, run_id, unit):
    detail = queries.case_detail(store, run_id, VARIANT, unit.evalset, unit.case_id)
    for number, word in enumerate(WORDS):
        label = set_label(store, run_id, unit, word, name=" Ada ", note=f"note {number}")
        assert labels.labels(store) == labels.labels(store, run_id, VARIANT) == (label,)
        assert beside(store, run_id, unit) == CaseLabels(own=label)
    assert (label.label, label.name, label.note, label.unit) == ("flaky", "Ada", "note 3", unit)
    assert label.answer_sha256 == sha256_text(detail.variant.text)
    assert beside(store, run_id, unit).lines(detail.variant.text) == [
        f"labelled flaky by Ada on {label.created_at[:10]}: note 3"
    ]
    assert labels.labels(store, run_id, "int8") == ()
    with store.read() as connection:
        assert connection.scalar(text("select count(*) from sealed where kind = 'label'")) == len(WORDS)


def test_the_same_label_again_is_one_row_and_a_removed_one_does_not_count(store, run_id, unit):
    first = set_label(store, run_id, unit, "flaky", name="Ada")
    assert set_label(store, run_id, unit, "flaky", name="Ada", note=" \u200b\u3164") == first
    removed = set_label(store, run_id, unit, NO_LABEL, name="Bob", note="a mistake")
    assert set_label(store, run_id, unit, NO_LABEL, name="Bob", note="a mistake") == removed
    assert labels.labels(store) == ()
    assert beside(store, run_id, unit) == CaseLabels()
    with pytest.raises(UsageError, match="none to remove"):
        set_label(store, run_id, unit, NO_LABEL, name="Cleo")
    again = set_label(store, run_id, unit, "flaky", name="Ada")
    assert labels.labels(store) == (again,)
    with store.read() as connection:
        assert connection.scalar(text("select count(*) from sealed where kind = 'label'")) == 3


def test_the_next_run_of_a_case_shows_its_newest_label_and_whether_the_answer_is_another(store, run_id, unit):
    older = make_run(store, make_plan(cases=4, job_rows=8))
    set_label(store, older, unit, "regression", name="Ada")
    label = set_label(store, run_id, unit, "acceptable", name="Bob", note="shorter, and right")
    later = make_run(store, make_plan(cases=4, job_rows=8))
    assert beside(store, later, unit) == CaseLabels(other=label)
    answer = queries.case_detail(store, later, VARIANT, unit.evalset, unit.case_id).variant.text
    line = f"labelled acceptable by Bob on {label.created_at[:10]} (run {run_id}, {VARIANT}"
    assert beside(store, later, unit).lines(answer) == [f"{line}): shorter, and right"]
    assert beside(store, later, unit).lines(f"{answer}.") == [f"{line}, about another answer): shorter, and right"]
    own = set_label(store, later, unit, "flaky", name="Ada")
    assert beside(store, later, unit) == CaseLabels(own=own, other=label)
    assert len(beside(store, later, unit).lines(answer)) == 2
    set_label(store, run_id, unit, NO_LABEL, name="Bob")
    assert beside(store, later, unit).other.name == "Ada"
    other_cases = make_run(store, make_plan(cases=4, seed=9))
    assert beside(store, other_cases, unit) == CaseLabels()


def test_comments_leave_the_label_as_it_is_and_the_next_run_of_the_case_shows_them(store, run_id, unit):
    label = set_label(store, run_id, unit, "flaky", name="Ada")
    first = set_label(store, run_id, unit, COMMENT, name="Bob", note="why flaky?")
    assert set_label(store, run_id, unit, COMMENT, name="Bob", note="why flaky?") == first, "a second click"
    set_label(store, run_id, unit, COMMENT, name="Ada", note="it differs each night")
    assert set_label(store, run_id, unit, "flaky", name="Ada") == label, "the label before the comments is the same"
    lines = (f"commented by Bob on {first.created_at[:10]}: why flaky?",
             f"commented by Ada on {first.created_at[:10]}: it differs each night")  # fmt: skip
    assert beside(store, run_id, unit) == CaseLabels(own=label, comments=lines)
    assert labels.labels(store) == (label,)
    assert [row.note for row in labels.labels(store, comments=True)] == ["", "why flaky?", "it differs each night"]
    later = make_run(store, make_plan(cases=4, job_rows=8))
    place = f" (run {run_id}, {VARIANT})"
    assert beside(store, later, unit).comments == tuple(line.replace(": ", f"{place}: ", 1) for line in lines)
    set_label(store, run_id, unit, NO_LABEL, name="Ada")
    assert beside(store, run_id, unit) == CaseLabels(comments=lines), "a removed label takes no comment along"


def test_of_many_comments_the_newest_are_shown(store, run_id, unit):
    for number in range(COMMENTS_SHOWN + 2):
        set_label(store, run_id, unit, COMMENT, name="Ada", note=f"no {number}")
    shown = beside(store, run_id, unit).comments
    assert shown[0] == "2 earlier comments: `qualgate labels` lists all"
    assert [line.rpartition(" ")[2] for line in shown[1:]] == [str(number) for number in range(2, COMMENTS_SHOWN + 2)]


def test_changed_answers_are_those_that_the_filters_lost_and_gained_show(store, run_id):
    ways = (queries.CaseFilter(show="lost"), queries.CaseFilter(show="gained"))
    keys = [key for way in ways for key in queries.case_keys(store, run_id, VARIANT, way)]
    assert queries.flipped_answers(store, run_id, VARIANT) == {(k.evalset, k.case_id, k.repeat) for k in keys} != set()


def test_labels_of_many_cases_are_read_in_batches(store, run_id, unit, monkeypatch):
    monkeypatch.setattr(labels, "BATCH", 2)
    keys = [(key.evalset, key.case_id, key.repeat) for key in queries.case_keys(store, run_id, VARIANT)]
    made = {case: set_label(store, run_id, UnitKey(VARIANT, *case), "flaky", name="Ada") for case in keys[::2]}
    found = labels.labels_of_cases(store, run_id, VARIANT, keys)
    assert found == {case: CaseLabels(own=label) for case, label in made.items()}


def test_a_label_changes_no_evidence_score_or_verdict(store, run_id, unit):
    def decided() -> tuple:
        with store.read() as connection:
            seal = evidence_seal(connection, run_id)
        return seal, runs.evidence(store, run_id), queries.run_summary(store, run_id).verdicts, tuple(broken(store))

    before = decided()
    set_label(store, run_id, unit, "wrong reference", name="Ada")
    assert decided() == before


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ({"label": "good"}, "'good' is no label. Give one of: regression, acceptable"),
        ({"name": " \u200b"}, "needs the name"),
        ({"label": COMMENT, "note": " \u200b"}, "a comment needs a text"),
        ({"label": COMMENT, "note": "x", "name": ""}, "a comment needs the name"),
        ({"name": "x" * (LONGEST_NAME + 1)}, "at most 200 characters"),
        ({"note": "x" * (LONGEST_NOTE + 1)}, "at most 200 characters, and a note 4,000"),
        ({"unit": UnitKey(VARIANT, "arithmetic", "no such")}, "no answer of a variant"),
        ({"unit": UnitKey("int3", "arithmetic", "arithmetic-0000")}, "no answer of a variant 'int3'"),
        ({"unit": UnitKey("baseline", "arithmetic", "arithmetic-0000")}, "no answer of a variant 'baseline'"),
        ({"run_id": "no-run"}, "no-run has no answer"),
    ],
)
def test_a_label_that_says_nothing_or_is_about_nothing_is_refused(store, run_id, unit, given, why):
    given = {"run_id": run_id, "unit": unit, "label": "flaky", "name": "Ada", **given}
    with pytest.raises(UsageError, match=why):
        set_label(store, given.pop("run_id"), given.pop("unit"), given.pop("label"), **given)
    assert labels.labels(store) == ()


def test_hostile_texts_come_back_as_they_were_written(store, run_id, unit):
    label = set_label(store, run_id, unit, "flaky", name=HOSTILE, note=HOSTILE)
    assert label.note == HOSTILE.replace("\ud800", "\\ud800").strip()
    assert labels.labels(store) == (label,)


def test_labels_are_append_only_and_a_changed_one_is_found_where_it_is_read(store, run_id, unit):
    set_label(store, run_id, unit, "regression", name="Ada")
    for change in ("update sealed set body_json = 'B'", "delete from sealed"):
        with pytest.raises(QualgateError, match="append-only"), store.write() as connection:
            connection.execute(text(change))
    tamper(store, "update sealed set body_json = replace(body_json, 'regression', 'acceptable')")
    reads = (
        lambda: labels.labels(store),
        lambda: beside(store, run_id, unit),
        lambda: set_label(store, run_id, unit, "flaky", name="Bob"),
    )
    for read in reads:
        with pytest.raises(IntegrityError, match=f"label {VARIANT}: {unit.evalset}/.* is not what was recorded"):
            read()
    assert [line for line in broken(store) if line.startswith("label ")]


def test_a_pruned_run_keeps_its_labels_which_can_only_be_removed(store, run_id, unit):
    kept = set_label(store, run_id, unit, "acceptable", name="Ada")
    later = make_run(store, make_plan(cases=4, job_rows=8))
    prune.prune_run(store, run_id)
    assert beside(store, later, unit).other == kept
    with pytest.raises(EvidencePruned):
        set_label(store, run_id, unit, "flaky", name="Ada")
    set_label(store, run_id, unit, NO_LABEL, name="Ada")
    assert beside(store, later, unit) == CaseLabels()
    with pytest.raises(EvidencePruned):
        runs.evidence(store, run_id)


def test_an_answer_is_found_by_what_a_person_types(store, run_id, unit):
    for case, evalset in ((unit.case_id, None), (unit.question, None), (unit.case_id, unit.evalset)):
        assert labels.find_answer(store, run_id, VARIANT, case, evalset) == unit
    for words, why in (
        (("no-run", VARIANT, unit.case_id), "no run 'no-run' in this store"),
        ((run_id, "int3", unit.case_id), "no variant 'int3'. It has: int8"),
        ((run_id, VARIANT, "no such"), "no case 'no such'"),
        ((run_id, VARIANT, unit.case_id, "no set"), "in evalset 'no set'"),
        ((run_id, VARIANT, unit.case_id, None, 4), "answer 4 for int2"),
    ):
        with pytest.raises(UsageError, match=why):
            labels.find_answer(store, *words)


def test_a_case_id_of_two_evalsets_needs_the_evalset(store, monkeypatch):
    whole = plans._evalset

    def short_ids(*of_set):
        item = whole(*of_set)
        return replace(item, cases=tuple(replace(case, body={**case.body, "id": case.id[-4:]}) for case in item.cases))

    monkeypatch.setattr(plans, "_evalset", short_ids)
    run_id = make_run(store, make_plan(cases=2))
    with pytest.raises(UsageError, match="in several evalsets: arithmetic, json_extract, tool_calls"):
        labels.find_answer(store, run_id, VARIANT, "0000")
    assert labels.find_answer(store, run_id, VARIANT, "0000", "tool_calls").evalset == "tool_calls"
