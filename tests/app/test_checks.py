"""What a page says of a run's stored evidence, and when it was checked."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from qualgate_app import checks, data

from qualgate.store import scorings
from qualgate.store.database import open_store
from tests.app.test_decision import buttons
from tests.app.test_labels import label_in
from tests.app.test_views import shown
from tests.store.tampering import tamper

LAST = "where unit_id = (select max(unit_id) from units where run_id = '{}')"
CHANGED_TEXT = f"update units set text = text || '!' {LAST}"
CHANGED_SEAL = f"update units set sha256 = 'x' || substr(sha256, 2) {LAST}"


@pytest.fixture(autouse=True)
def _waits_for_checks(monkeypatch):
    monkeypatch.setattr(checks, "WAITED", 60)


def checked_at(page: str) -> str:
    return re.findall(r"The stored evidence was checked at ([^.]*UTC)", page)[0]


def test_a_page_says_when_the_evidence_was_checked(made, open_page):
    assert checked_at(shown(open_page("verdict", run=made.complete, variant="int8")))
    assert "checked at" not in shown(open_page("verdict", run=made.under_way, variant="int8")), "there is no verdict"


def test_evidence_is_not_read_again_until_somebody_writes_and_then_only_if_its_seal_is_another(
    made, open_page, monkeypatch
):
    read, evidence = [], checks.runs.evidence
    monkeypatch.setattr(checks.runs, "evidence", lambda *run: read.append(run) or evidence(*run))
    app = open_page("verdict", run=made.complete, variant="int2-g32")
    app.run()
    open_page("verdict", run=made.complete, variant="int8")
    assert len(read) == 1, "what one session checked holds for all, as long as nobody writes"
    label_in(app, "Regression")
    assert "being checked" not in shown(app)
    assert len(read) == 1, "a label is none of the evidence"
    with open_store(made.url) as store:
        tamper(store, CHANGED_SEAL.format(made.complete))
    assert "the stored answer or its scores are not what was recorded" in shown(app.run())
    assert len(read) == 2


def test_a_session_that_opens_after_a_write_gets_the_evidence_read_for_it(made, open_page):
    open_page("verdict", run=made.complete, variant="int8")
    with open_store(made.url) as store:
        tamper(store, CHANGED_TEXT.format(made.complete))  # which no seal covers
    page = shown(open_page("verdict", run=made.complete, variant="int8"))
    assert "the stored answer or its scores are not what was recorded" in page


def test_an_earlier_check_is_shown_with_its_time_while_another_is_under_way_and_never_as_one_that_holds(
    made, open_page, monkeypatch
):
    open_page("verdict", run=made.complete, variant="int8")
    monkeypatch.setattr(checks, "WAITED", 0)
    monkeypatch.setattr(checks._CHECKS, "submit", lambda *_: checks.Future())
    with open_store(made.url) as store:
        tamper(store, CHANGED_TEXT.format(made.complete))
    page = shown(open_page("verdict", run=made.complete, variant="int8"))
    assert "Somebody wrote to the store since, and it is being checked again" in page
    checks._RUNNING.clear()


def test_a_check_that_fails_leaves_nothing_known(made, open_page, monkeypatch):
    open_page("verdict", run=made.complete, variant="int8")
    with open_store(made.url) as store:
        tamper(store, CHANGED_TEXT.format(made.complete))

    def ended(*run: str) -> None:
        raise checks.InfrastructureError("the process ended with -9")

    monkeypatch.setattr(checks, "examined", ended)
    page = shown(open_page("verdict", run=made.complete, variant="int8"))
    assert "the process ended with -9" in page
    assert (made.url, made.complete) not in checks._KNOWN


@pytest.mark.parametrize("damaged", [False, True])
def test_a_large_run_is_checked_and_read_beside_the_page_which_shows_the_verdict_at_once(
    made, open_page, monkeypatch, damaged
):
    monkeypatch.setattr(checks, "LARGE", 0)
    if damaged:
        with open_store(made.url) as store:
            tamper(store, CHANGED_TEXT.format(made.complete))
    app = open_page("verdict", run=made.complete, variant="int8")
    page = shown(app)
    assert "all 5 critical rules proven" in page
    assert "evidence is being checked" in page
    assert buttons(app) == {"Approve": False, "Block": False}
    checks._RUNNING[made.url, made.complete].result(120)
    data._READS.submit(int).result(120)
    page = shown(app.run())
    assert ("the stored answer or its scores are not what was recorded" in page) == damaged
    assert ("Changed cases" not in page and "flips labelled" in page) == (not damaged)
    assert buttons(app) == {"Approve": not damaged, "Block": True}


def test_a_page_reads_again_what_a_later_scoring_changed(made, open_page):
    assert " of 0 flips" not in shown(open_page("verdict", run=made.complete, variant="int2-g32"))
    with open_store(made.url) as store:
        stored = scorings.read(store, made.complete)
        right = {
            one.unit_id: tuple(replace(score, value=1.0, verdict=True) for score in one.scores)
            for one in stored.answers
        }
        scorings.add(store, made.complete, 0, right)
    assert "0 of 0 flips labelled" in shown(open_page("verdict", run=made.complete, variant="int2-g32"))
