"""The page of nights: how they ended, what fell since the approved run, and who was not told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from qualgate.records.identity import sha256_text
from qualgate.store.database import open_store
from qualgate.store.nights import Night, add_digests, add_night, note_attempt, undelivered
from tests.app.conftest import HOSTILE
from tests.app.test_views import shown
from tests.store.made import make_plan, make_run

KEPT = {"int8": 0.0, "int2-g32": 0.0}
LOST = {"int8": 0.3, "int2-g32": 0.0}
NIGHT = Night(
    nightly="nightly.yaml", gate="support", model="", due_at="2026-11-25T02:00:00Z", began_at="2026-11-25T02:00:01Z",
    finished_at="2026-11-25T03:00:00Z", run_id=None, repeated=False, exit=0,
)  # fmt: skip


@pytest.fixture(scope="module")
def nights_url(tmp_path_factory) -> str:
    """Eight nights of one gate file, of which int8 lost answers on the last three; and another that never ran."""
    url = f"sqlite:///{tmp_path_factory.mktemp('nights') / 'qualgate.db'}"
    plan = replace(make_plan(cases=60, wrong=KEPT), key=sha256_text("one"))
    with open_store(url) as store:
        for wrong in [KEPT] * 5 + [LOST] * 3:
            run = make_run(store, plan, wrong)
            add_night(store, replace(NIGHT, run_id=run, exit=0 if wrong is KEPT else 10))
        add_night(store, replace(NIGHT, gate="search", exit=64, said=HOSTILE))
        add_digests(store, "nightly.yaml", {"slack": {}}, 9)
        note_attempt(store, undelivered(store, "nightly.yaml")[0], "the server answered 500")
    return url


def test_the_page_shows_each_gate_files_nights_what_fell_and_who_was_not_told(nights_url, monkeypatch, open_page):
    monkeypatch.setenv("QUALGATE_STORE", nights_url)
    said = shown(open_page("nights"))
    assert "support" in said
    assert said.count("✓") == 5
    assert said.count("✗") == 3
    assert "cannot be judged" in said
    assert "fallen: int8 exact_match by" in said, "in the words of `qualgate trend`"
    assert said.index("fallen") < said.index("no fall")
    assert "1 digest not delivered" in said
    assert "the server answered 500" in said
    assert "<script>window" not in said, "what a night said is only text"
    assert "\x1b" not in said


def test_a_store_without_nights_says_what_makes_them_and_has_a_trend_by_link(made, open_page):
    said = shown(open_page("nights"))
    assert "qualgate nightly nightly.yaml" in said
    linked = shown(open_page("nights", run=made.complete))
    assert "The trend" in linked
