"""The section on speculation of a variant's page: what a report says, and flags to copy."""

from __future__ import annotations

from dataclasses import replace
from html import escape

import pytest

from qualgate.gate.decide import decide
from qualgate.records import DraftSource, Speculation
from qualgate.report.speculation import advice, headline, speculation_sections
from qualgate.store import queries, runs
from qualgate.store.database import open_store
from tests.app.test_views import shown
from tests.drafts import with_drafts
from tests.report.reading import cells
from tests.store.made import make_plan, make_results

SPEC = Speculation(draft=DraftSource(kind="ngram"), tokens=5)
HOSTILE = "<img src=x onerror=window.owned=1> [link](javascript:window.owned=1)"


@pytest.fixture
def speculating(tmp_path, monkeypatch) -> tuple[str, str]:
    """A store and its run: int8 drafts well, mxfp4 badly, by a proposer of a hostile name."""
    url = f"sqlite:///{tmp_path / 'drafted.db'}"
    plan = make_plan(cases=40, wrong={"int8": 0.0, "mxfp4": 0.0, "int2-g32": 0.2})
    drafts = {"int8": ((0.95, 0.9, 0.9, 0.9, 0.9), "ngram"), "mxfp4": ((0.0,) * 5, HOSTILE)}
    arms = tuple(replace(arm, speculation=SPEC) if arm.name in drafts else arm for arm in plan.arms)
    plan = replace(plan, arms=arms)
    with open_store(url) as store:
        run = runs.begin(store, plan).run_id
        for result, scores in make_results(plan):
            if result.arm in drafts:
                chances, who = drafts[result.arm]
                result = with_drafts(result, chances, proposer=who)
            runs.record(store, run, result, scores)
        verdicts = decide(runs.evidence(store, run), plan.policy).verdicts
        runs.finish(store, run, verdicts, complete=True)
    monkeypatch.setenv("QUALGATE_STORE", url)
    return url, run


def test_a_variants_page_says_of_its_drafts_what_a_report_says(speculating, open_page):
    url, run = speculating
    with open_store(url) as store:
        verdict = queries.run_summary(store, run).verdict("int8").verdict
    found = verdict.speculated
    app = open_page("verdict", run=run, variant="int8")
    page = shown(app)
    assert headline(found) in page
    assert all(escape(cell) in page for cell in cells(speculation_sections(verdict)))
    assert advice(found).sentence in page
    assert [one.value for one in app.get("code") if one.value.startswith("--spec")] == [
        peer.flags for peer in advice(found).peers
    ]
    without = open_page("verdict", run=run, variant="int2-g32")
    assert not any("Speculation" in one.value for one in without.get("subheader"))
    drawn = [sum("of all drafts" in str(one.proto) for one in page.get("iframe")) for page in (app, without)]
    assert drawn == [1, 0]


def test_a_draft_that_is_always_rejected_is_named_there_and_its_name_stays_text(speculating, open_page):
    _, run = speculating
    app = open_page("verdict", run=run, variant="mxfp4")
    page = shown(app)
    (warning,) = (one.value for one in app.get("warning"))
    assert "is always rejected: 0 of" in warning.replace("\\", "")
    assert "[link](javascript" not in warning, "every mark of Markdown is escaped"
    assert all("<img" not in one.value for one in app.get("html"))
    assert "no token of it was accepted" in page
    assert "--speculative" not in page
