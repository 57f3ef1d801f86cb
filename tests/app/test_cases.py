"""The table of cases: as `qualgate answers` lists them, sorted, searched, walked through, and kept in the address."""

from __future__ import annotations

import shlex
from dataclasses import replace
from urllib.parse import parse_qsl

import pytest

from qualgate.store import queries, runs
from qualgate.store.database import open_store
from tests.app.test_views import press, shown
from tests.store import made as plans
from tests.store.made import make_plan, make_run

VARIANT = "int2-g32"


@pytest.fixture
def opened(made, open_page):
    """Open the page of the variant with most losses, with these filters in the address."""
    return lambda **query: open_page("verdict", run=made.complete, variant=VARIANT, **query)


def stored(made, sort: queries.Sort = "KL", **wanted) -> list[str]:
    """The names of these cases, in order."""
    with open_store(made.url) as store:
        keys = queries.case_keys(store, made.complete, VARIANT, queries.CaseFilter(**wanted), sort)
    return [key.name for key in keys]


def listed(app) -> list[str]:
    """The names in the table, in order."""
    rows = [str(one.proto.body) for one in app.get("html") if 'data-name="case"' in str(one.proto.body)]
    return [row.split("<b>")[1].split("</b>")[0] for row in rows]


@pytest.mark.parametrize("sort", queries.SORTS)
def test_the_table_opens_at_the_losses_and_is_sorted(made, opened, sort):
    app = opened(sort=sort)
    lost = stored(made, sort, show="lost")
    assert listed(app) == lost[:8]
    assert f"1 of {len(lost)}" in shown(app)


def test_each_filter_of_the_command_is_one_of_the_page(made, opened):
    app = opened()
    assert app.selectbox(key="show").options == ["every case", *queries.SHOWS]
    app.selectbox(key="show").select("gained").run()
    app.selectbox(key="set").select("tool_calls").run()
    assert listed(app) == stored(made, show="gained", evalset="tool_calls")[:8]


def test_a_case_is_opened_from_its_row_and_the_next_by_a_key(made, opened):
    app, lost = opened(), stored(made, show="lost")
    app.button(key="open 2").click().run()
    assert app.query_params["case"] == lost[2]
    assert "\n3 of " in shown(app)
    press(app, "Next").run()
    assert app.query_params["case"] == lost[3]
    press(app, "Page after").run()
    assert listed(app) == lost[8:16]
    app.selectbox(key="show").select("every case").run()
    assert "case" not in app.query_params, "another filter starts at its first case"


def test_an_address_opens_the_same_case_with_the_same_filters(made, opened):
    found = stored(made, "length", show="lost", evalset="tool_calls", metric="tool_call.valid")
    app = opened(show="lost", set="tool_calls", metric="tool_call.valid", sort="length", case=found[-1])
    assert f"{len(found)} of {len(found)}" in shown(app)
    with open_store(made.url) as store:
        case = queries.case_keys(store, made.complete, VARIANT)[0]
        text = queries.compared(store, made.complete, [case])[0].prompt
    assert case.name in listed(opened(show="every case", search=text.split(": ", 1)[1].upper()))


def test_a_reason_that_names_a_slice_links_to_its_cases(made, opened):
    links = [one.proto for one in opened().get("page_link") if one.proto.label == "Cases"]
    queries_of = [dict(parse_qsl(one.query_string)) for one in links]
    pooled = next(one for one in queries_of if "set" not in one)
    assert (pooled["show"], pooled["metric"], pooled["variant"]) == ("lost", "exact_match", VARIANT)
    assert {one["set"] for one in queries_of if "set" in one} >= {"tool_calls"}


def test_a_reason_that_names_a_tag_links_to_the_cases_that_carry_it(made, open_page, monkeypatch):
    bare = plans._body
    monkeypatch.setattr(plans, "_body", lambda name, rng: {**bare(name, rng), "tags": [f'form:"{rng.randrange(2)}"']})
    with open_store(made.url) as store:
        run_id = make_run(store, make_plan(cases=20, seed=7, wrong={VARIANT: 0.5}), {VARIANT: 0.5})
        found = queries.run_summary(store, run_id).verdict(VARIANT)
        tagged = replace(found.verdict.comparisons[0], slice='tag:form:"0"')
        fell = replace(found.verdict, reasons=('exact_match [tag:form:"0"] fell',), comparisons=(tagged,))
        runs.add_verdicts(store, run_id, [fell], found.policy)
        keys = queries.case_keys(store, run_id, VARIANT, queries.CaseFilter(show="lost"), "KL")
        details = [queries.case_detail(store, run_id, VARIANT, key.evalset, key.case_id) for key in keys]
    (link,) = (one.proto for one in open_page("verdict", run=run_id).get("page_link") if one.proto.label == "Cases")
    app = open_page("verdict", **dict(parse_qsl(link.query_string)))
    lost = [key.name for key, one in zip(keys, details, strict=True) if one.body["tags"] == ['form:"0"']]
    assert 0 < len(lost) < len(keys)
    assert f"1 of {len(lost)}" in shown(app)
    assert listed(app) == lost[:8]


def test_a_case_that_the_baseline_changes_against_itself_is_named_and_last(made, open_page):
    wrong = {VARIANT: 0.5, "baseline@aa": 0.9}
    with open_store(made.url) as store:
        run_id = make_run(store, make_plan(cases=6, seed=5, wrong=wrong), wrong)
        keys = queries.case_keys(store, run_id, VARIANT, queries.CaseFilter(show="lost"), "KL")
    assert keys[-1].noisy
    page = shown(open_page("verdict", run=run_id, variant=VARIANT, case=keys[-1].name))
    assert "changes in the A/A arm too" in page
    assert "and comes last" in page


def test_the_open_case_names_the_command_that_answers_it_again(made, opened):
    app, lost = opened(), stored(made, "KL", show="lost")
    [command] = [shlex.split(one.value) for one in app.code if "qualgate again" in one.value]
    evalset, _, case_id = lost[0].partition("/")
    options = ["--variant", VARIANT, "--evalset", evalset, "--store", made.url]
    assert command == ["qualgate", "again", made.complete, case_id, *options]
