"""On a variant's page: what weights and cache lose apart and together, as a report says it."""

from __future__ import annotations

from dataclasses import replace

from qualgate.gate.decide import decide
from qualgate.report.weights_and_cache import weights_and_cache_sections
from qualgate.store import runs
from qualgate.store.database import open_store
from tests.app.test_views import shown
from tests.report.reading import cells
from tests.store.made import make_plan, make_results


def test_the_page_of_the_variant_with_both_says_what_a_report_says(tmp_path, monkeypatch, open_page):
    url = f"sqlite:///{tmp_path / 'apart.db'}"
    plan = make_plan(cases=40, wrong={"int8": 0.05, "mxfp4": 0.0, "int2-g32": 0.2})
    ours, weights = plan.identities["baseline"], plan.identities["int8"]
    held = {"mxfp4": replace(ours, kv_cache="int4"), "int2-g32": replace(weights, kv_cache="int4")}
    plan = replace(plan, identities={**plan.identities, **held})
    with open_store(url) as store:
        run = runs.begin(store, plan).run_id
        for result, scores in make_results(plan):
            runs.record(store, run, replace(result, identity=plan.identities[result.arm]), scores)
        verdicts = decide(runs.evidence(store, run), plan.policy).verdicts
        runs.finish(store, run, verdicts, complete=True)
    (verdict,) = (one for one in verdicts if one.weights_and_cache is not None)
    found = verdict.weights_and_cache
    assert (found.weights, found.cache, found.both) == ("int8", "mxfp4", "int2-g32")
    monkeypatch.setenv("QUALGATE_STORE", url)
    page = shown(open_page("verdict", run=run, variant=found.both))
    for cell in cells(weights_and_cache_sections(verdict)):
        assert cell in page, cell
    assert "apart and together" not in shown(open_page("verdict", run=run, variant=found.cache))
