"""An approval is one click: what holds it back, what refuses it by name, and that two clicks are one decision."""

from __future__ import annotations

from threading import Event

from qualgate_app import data

from qualgate.store import queries
from qualgate.store.database import open_store
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
        assert "by <b>Ada</b>" in page
    assert decided(made) == [("approve", "Ada")]


def test_a_refusal_is_gone_once_the_decision_is_recorded(made, open_page):
    app = open_page("verdict", run=made.complete, variant="int8")
    assert "Nothing was recorded." in shown(decide_in(app, "Approve", "Ada", " "))
    app.text_area(key="decide_reason").input("fine")
    assert "Nothing was recorded." not in shown(press(app, "Approve").run())
    assert decided(made) == [("approve", "Ada")]
