"""An approval is one click: what holds it back, what refuses it by name, and that two clicks are one decision."""

from __future__ import annotations

from threading import Event

from qualgate.store import queries
from qualgate.store.database import open_store
from qualgate.store.signing.keys import TRUSTED, make_key, public_path
from qualgate_app import data
from tests.app.test_views import decide_in, press, shown
from tests.store.tampering import tamper


def decided(made) -> list[tuple[str, str]]:
    with open_store(made.url) as store:
        return [(one.action, one.name) for one in queries.list_decisions(store)]


def buttons(app) -> dict[str, bool]:
    """Whether each can be pressed."""
    return {one.label: not one.disabled for one in app.button if one.label in ("Approve", "Block")}


def test_nothing_is_decided_before_the_evidence_is_checked_which_the_page_does_not_wait_for(
    made, open_page, monkeypatch
):
    go_on, check = Event(), data._faults
    monkeypatch.setattr(data, "WAITED", 0)
    monkeypatch.setattr(data, "_faults", lambda *run: go_on.wait(30) and check(*run))
    app = open_page("verdict", run=made.complete, variant="int8")
    assert "evidence is being checked" in shown(app)
    assert buttons(app) == {"Approve": False, "Block": False}
    go_on.set()
    monkeypatch.setattr(data, "WAITED", 30)
    assert "being checked" not in shown(app.run())
    assert buttons(app) == {"Approve": True, "Block": True}


def test_evidence_that_changed_since_the_page_opened_is_named_and_nothing_is_recorded(made, open_page):
    app = open_page("verdict", run=made.complete, variant="int8")
    with open_store(made.url) as store:
        tamper(
            store, "update units set sha256 = 'x' || substr(sha256, 2) where unit_id = (select max(unit_id) from units)"
        )
    page = shown(decide_in(app, "Approve", "Ada", "fine"))
    assert "Nothing was recorded." in page
    assert f"the evidence of run {made.complete} has changed since you opened it: its seal was" in page
    assert decided(made) == []


def test_a_second_click_on_what_was_shown_before_is_the_same_decision(made, open_page):
    first, second = (open_page("verdict", run=made.complete, variant="int8") for _ in range(2))
    for app in (first, second):
        page = shown(decide_in(app, "Approve", "Ada", "fine"))
        assert "Nothing was recorded." not in page
        assert "by <b>Ada (unauthenticated)</b>" in page
    assert decided(made) == [("approve", "Ada")]


def test_a_refusal_is_gone_once_the_decision_is_recorded(made, open_page):
    app = open_page("verdict", run=made.complete, variant="int8")
    assert "Nothing was recorded." in shown(decide_in(app, "Approve", "Ada", " "))
    app.text_area(key="decide_reason").input("fine")
    assert "Nothing was recorded." not in shown(press(app, "Approve").run())
    assert decided(made) == [("approve", "Ada")]


def test_an_approval_against_the_gate_asks_what_it_overrules_and_why(made, open_page):
    app = open_page("verdict", run=made.complete, variant="int2-g32")
    page = shown(decide_in(app, "Approve", "Ada", "I looked at each of the flips"))
    assert "An approval must say what it overrules" in page
    choices = app.selectbox(key="decide_overrules")
    choices.select(choices.options[0])
    app.text_area(key="decide_reason").input("too short")
    assert "give a reason of 20 characters or more" in shown(press(app, "Approve").run())
    app.text_area(key="decide_reason").input("I looked at each of the flips")
    app.selectbox(key="decide_lasts").select("for 30 days")
    page = shown(press(app, "Approve").run())
    assert "<b>overrules the gate</b> exact_match [" in page
    assert " · holds until 20" in page
    assert decided(made) == [("approve", "Ada")]


def test_a_decision_is_revoked_by_a_button_that_is_there_once_there_is_one(made, open_page):
    app = open_page("verdict", run=made.complete, variant="int8")
    assert "Revoke" not in [one.label for one in app.button]
    decide_in(app, "Approve", "Ada", "fine")
    page = shown(decide_in(app, "Revoke", "Grace", "of another model"))
    assert "by <b>Grace (unauthenticated)</b>" in page
    assert "Your decision" in page
    assert decided(made) == [("revoke", "Grace"), ("approve", "Ada")]
    assert "int8" in shown(open_page())


def test_a_verdict_that_is_not_as_the_trusted_key_signed_it_is_not_decided(made, open_page, tmp_path, monkeypatch):
    make_key(tmp_path / "key")
    monkeypatch.setenv(TRUSTED, str(public_path(tmp_path / "key")))
    page = shown(open_page("verdict", run=made.complete, variant="int8"))
    assert "is not signed" in page
    assert "invalid" in page
