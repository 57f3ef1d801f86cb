"""The page of loads: what rules said of each variant, and one load by its rules, picture and tables."""

from __future__ import annotations

import shutil
from dataclasses import replace
from xml.etree import ElementTree

import pytest

from qualgate.report.load_sections import load_picture
from qualgate.report.plots.load import as_file
from qualgate.store import loads
from qualgate.store.database import open_store
from tests.app.conftest import HOSTILE
from tests.app.loads import load_of
from tests.app.test_views import press, shown
from tests.store.made import make_plan, make_run
from tests.store.tampering import tamper

GATE = "version: 1\nload: {concurrency: [4], rate: [8], rounds: 10}\n"


@pytest.fixture(scope="module")
def loads_once(tmp_path_factory):
    """Two loads of a gate file that a run has too, and one that is hostile wherever somebody says something."""
    path = tmp_path_factory.mktemp("loads") / "qualgate.db"
    bodies = load_of({"awq": 0.8}), load_of({"awq": 0.8, "int2": 1.3})
    hostile = load_of({HOSTILE: 0.9}, cancelled=False, server=HOSTILE) | {"notes": [HOSTILE]}
    with open_store(f"sqlite:///{path}") as store:
        run = make_run(store, replace(make_plan(cases=4), gate_name="support.yaml"))
        kept = [loads.add(store, "support.yaml", GATE, "f" * 64, code, body)
                for code, body in zip((0, 10), bodies, strict=True)]  # fmt: skip
        kept.append(loads.add(store, HOSTILE, HOSTILE, "f" * 64, 12, hostile))
    return path, run, kept


@pytest.fixture
def stored(loads_once, tmp_path, monkeypatch):
    path, run, kept = loads_once
    url = f"sqlite:///{shutil.copy(path, tmp_path / 'loads.db')}"
    monkeypatch.setenv("QUALGATE_STORE", url)
    return url, run, kept


def test_loads_are_listed_the_newest_first_with_how_each_ended_and_why(stored, open_page):
    page = shown(open_page("loads"))
    assert page.index(">undecided<") < page.index(">block<") < page.index("<b>int2</b>")
    assert page.count("<b>support.yaml</b>") == 2
    assert "4 at once, 8/s · 10 rounds" in page
    assert "throughput.answers max_drop 0.05 at 4 at once: 0 of 10 rounds are within it" in page


def test_one_load_shows_each_variants_rules_and_the_reports_picture_and_tables(stored, open_page):
    app = open_page("loads", load=stored[2][1])
    page = shown(app)
    assert 'awq under load <span class="chip approve">' in page
    for said in ("throughput.answers max_drop 0.05", "0 of 10 rounds are within it (p = 0.00098)", "answers/s",
                 "p95 by round", "end to end", "vllm 0.33.0, support", "10 rounds, 240 prompts, seed 7"):  # fmt: skip
        assert said in page
    assert GATE.splitlines()[1] in page
    [frame] = app.get("iframe")
    for said in ("TTFT, 95th percentile, ms", "int2", "4 at once", "Content-Security-Policy"):
        assert said in str(frame.proto)


def test_what_names_servers_and_gate_files_say_is_only_text(stored, open_page):
    for app in (open_page("loads"), open_page("loads", load=stored[2][2])):
        said = shown(app) + "".join(str(frame.proto) for frame in app.get("iframe"))
        html = "".join(str(one.proto) for kind in ("html", "iframe") for one in app.get(kind))
        assert "onerror=window.owned" in said
        assert "<script>window" not in html
        assert "<img src" not in html
        assert "\x1b" not in said


def test_a_verdicts_page_leads_to_the_loads_of_its_gate_file(stored, made, open_page, monkeypatch):
    url, run, _ = stored
    monkeypatch.setenv("QUALGATE_STORE", url)
    links = [str(one.proto) for one in open_page("verdict", run=run).get("page_link")]
    assert any("2 loads" in one and "gate=support.yaml" in one for one in links)
    page = shown(open_page("loads", gate="support.yaml"))
    assert "2 loads of <b>support.yaml</b>" in page
    assert "undecided" not in page
    monkeypatch.setenv("QUALGATE_STORE", made.url)
    assert "loads" not in str([one.proto for one in open_page("verdict", run=made.complete).get("page_link")])


def test_more_loads_than_a_page_holds_are_turned_through(stored, open_page):
    with open_store(stored[0]) as store:
        for _ in range(20):
            loads.add(store, "newer.yaml", GATE, "f" * 64, 0, load_of({}))
    app = open_page("loads")
    assert "support.yaml" not in shown(app)
    assert "support.yaml" in shown(press(app, "Older").run())


def test_a_load_that_was_changed_is_not_shown_and_an_unknown_one_is_told_of(stored, open_page):
    assert "no load 'nope'" in shown(open_page("loads", load="nope"))
    with open_store(stored[0]) as store:
        tamper(store, f"update sealed set name = '' where part = '{stored[2][1]}'")
    for page in (shown(open_page("loads")), shown(open_page("loads", load=stored[2][1]))):
        assert "Stored evidence is not what was recorded" in page
        assert "int2" not in page


def test_a_store_without_loads_says_what_makes_one(made, open_page):
    assert "qualgate load gate.yaml" in shown(open_page("loads"))


def test_the_stored_form_draws_the_file_that_the_command_writes(stored):
    with open_store(stored[0]) as store:
        body = loads.one_load(store, stored[2][1]).body
    picture = ElementTree.fromstring(as_file(load_picture(body)))
    told = [one.text for one in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"baseline", "awq", "int2", "limit", "output tokens a second"} <= set(told)
    assert len(list(picture.iter("{http://www.w3.org/2000/svg}style"))) == 1
