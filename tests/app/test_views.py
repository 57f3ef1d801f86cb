"""Every page, without a browser: what a reviewer reads, and what a click writes."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest
from qualgate_app.keys import SCRIPT
from sqlalchemy import text

from qualgate.gate.four_arm.verdict import decide_four
from qualgate.gate.verdict import decide_plain
from qualgate.records import Comparison, Policy, Rule, Verdict
from qualgate.store import decisions, prune, queries, runs
from qualgate.store.database import open_store
from tests.gate.four import POLICY, alike, evidence
from tests.gate.four_arm.test_verdict import CHEAPER
from tests.store.made import make_plan, make_results, make_run, said

ROOT = Path(__file__).resolve().parents[2]


NOTICES = ("info", "success", "warning", "error")


def shown(app) -> str:
    """All that a page says, as one text."""
    assert not app.exception, [one.value for one in app.exception]
    kinds = ("header", "subheader", "markdown", "caption", "text", "code", "html", "button", *NOTICES)
    texts = [(kind, str(getattr(one, "value", "") or one.proto)) for kind in kinds for one in app.get(kind)]
    # In headings and warnings stored text is escaped as Markdown; a reader sees no escapes.
    ours = f"<script>{SCRIPT}</script>"  # the one script of the pages
    texts = [(kind, text.replace(ours, "")) for kind, text in texts]
    return "\n".join(text.replace("\\", "") if kind in ("subheader", "warning") else text for kind, text in texts)


def press(app, label: str):
    return next(button for button in app.button if button.label == label).click()


def decide_in(app, label: str, name: str, reason: str):
    app.text_input(key="reviewer").input(name)
    app.text_area(key="decide_reason").input(reason)
    return press(app, label).run()


def test_the_queue_lists_what_waits_for_a_person(made, open_page):
    page = shown(open_page())
    assert "5 variants" in page
    assert "approve" in page
    assert "block" in page
    assert "int2-g32" in page


def test_the_queue_shows_how_long_each_variant_waits_the_blocked_one_first(made, open_page):
    page = shown(open_page())
    assert "waits for " in page
    assert page.index("int2-g32") < page.index("int8")


def links(app) -> dict[str, str]:
    """Label of each link to a page → its query."""
    return {one.proto.label.replace("\\", ""): one.proto.query_string for one in app.get("page_link")}


def test_the_next_variant_in_the_queue_is_linked_and_after_a_decision_it_is_the_one_that_followed(made, open_page):
    with open_store(made.url) as store:
        order = [(line.run_id, line.variant) for line in queries.queue(store)]
    for this, following in pairwise([*order, order[0]]):
        app = open_page("verdict", run=this[0], variant=this[1])
        assert f"variant={following[1]}" in links(app)[f"Next in queue: {following[1]}"]
    app = decide_in(open_page("verdict", run=order[1][0], variant=order[1][1]), "Block", "Ada", "it loses too much")
    assert f"Next in queue: {order[2][1]}" in links(app)


def test_a_verdict_shows_what_changed_since_the_last_run_with_a_link_to_it(made, open_page):
    plan = make_plan(cases=60)
    assert "Since the last run" not in shown(open_page("verdict", run=made.complete, variant="int8"))
    with open_store(made.url) as store:
        newer = make_run(store, plan, {"int8": 0.3})
    app = open_page("verdict", run=newer, variant="int8")
    page = shown(app)
    assert "Since the last run of this gate file</b> (20" in page
    assert "approve → block; exact_match [pooled]: proven → broken" in page
    assert f"run={made.complete}" in links(app)["Last run"]
    with open_store(made.url) as store:
        make_run(store, plan, {"int8": 0.3})
        third = queries.latest_run(store)
    assert "block, as before; no rule has another result" in shown(open_page("verdict", run=third, variant="int8"))


def test_a_verdict_shows_what_is_gained_in_bytes_and_time_where_they_were_measured(made, open_page):
    plan = make_plan(cases=20, wrong={"int8": 0.0})
    with open_store(made.url) as store:
        record = runs.begin(store, plan)
        for result, scored in make_results(plan, {}):
            held = {"memory.weights": 8e6 if result.arm == "baseline" else 2e6}
            runs.record(store, record.run_id, replace(result, footprint=replace(result.footprint, facts=held)), scored)
        rule = Comparison(
            rule="latency.tpot:max_ratio", metric="latency.tpot", slice="pooled", tier="critical", status="proven",
            n=60, baseline=0.03, variant=0.02,
        )  # fmt: skip
        verdict = Verdict(variant="int8", word="approve", exit=0, reasons=("fine",), comparisons=(rule,))
        runs.finish(store, record.run_id, [verdict], complete=True)
    gains = {
        one.label: (one.value, one.delta) for one in open_page("verdict", run=record.run_id, variant="int8").metric
    }
    assert gains["In memory, read per token"] == ("1.91 MiB", "4.0× smaller")
    assert gains["Time per token"] == ("20.0 ms", "1.5× faster")
    assert gains["Weights on disk"][1] == "2.0× smaller"
    bare = {one.label for one in open_page("verdict", run=made.complete, variant="int8").metric}
    assert {"Weights on disk", "Bits a weight"} < bare
    assert not bare & {"In memory, read per token", "Time per token"}, "only what was measured"


def test_runs_show_their_state_and_what_became_of_each_variant(made, open_page):
    page = shown(open_page("runs"))
    assert "900 of 900 answers" in page
    assert "under way, or interrupted" in page
    assert "no verdict" in page


def test_every_page_tells_that_a_run_was_pruned(made, open_page):
    with open_store(made.url) as store:
        newer = make_run(store, make_plan(cases=60))
        for run_id in (made.complete, newer):
            for one in queries.run_summary(store, run_id).verdicts:
                decisions.append(store, run_id, one.verdict.variant, said(one), decisions.Seen(one.sha256))
        assert [one.run_id for one in prune.to_prune(store, "9999")[0]] == [made.complete]
        prune.prune_run(store, made.complete)
    for name, query in (
        ("runs", {}),
        ("decisions", {}),
        ("nights", {"run": made.complete}),
        ("verdict", {"run": made.complete, "variant": "int8"}),
    ):
        page = shown(open_page(name, **query))
        assert "pruned on 20" in page, name
    assert "invalid" in page
    assert "Ada (unauthenticated) decided &#x27;approve&#x27;" in page
    assert "pruned on" not in shown(open_page("verdict", run=newer, variant="int8"))


def test_a_verdict_says_why_and_shows_the_first_loss_side_by_side(made, open_page):
    app = open_page("verdict", run=made.complete, variant="int2-g32")
    page = shown(app)
    assert "exact_match [pooled] fell" in page
    assert "A loss beyond what the policy allows is proven." in page
    assert "<del>" in page
    assert "<ins>" in page
    assert "prompt" in page
    assert "reference" in page
    assert len(app.get("iframe")) == 4, "rules of quality, other rules, flips, drift"


def test_approving_with_name_and_reason_is_recorded_and_shown(made, open_page):
    app = open_page("verdict", run=made.complete, variant="int8")
    decide_in(app, "Approve", "Ada Lovelace", "All flips are improvements.")
    with open_store(made.url) as store:
        [made_decision] = queries.list_decisions(store)
        assert (made_decision.action, made_decision.name, made_decision.variant) == ("approve", "Ada Lovelace", "int8")
        decisions.check_chain(store)
    assert app.text_area(key="decide_reason").value == "", "one more click decides nothing a second time"
    assert app.text_input(key="reviewer").value == "Ada Lovelace"
    assert "All flips are improvements." in shown(app)
    assert "4 variants" in shown(open_page())
    chain = shown(open_page("decisions"))
    assert "The chain is whole" in chain
    assert "Ada Lovelace" in chain


def test_a_decision_without_a_reason_is_refused_and_says_so(made, open_page):
    app = open_page("verdict", run=made.complete, variant="int8")
    page = shown(decide_in(app, "Block", "Ada", " "))
    assert "Nothing was recorded." in page
    assert "name and a reason" in page
    with open_store(made.url) as store:
        assert queries.list_decisions(store) == ()


def test_a_verdict_that_changed_while_the_page_was_open_is_not_decided(made, open_page):
    app = open_page("verdict", run=made.complete, variant="int8")
    changed = Verdict(variant="int8", word="block", exit=10, reasons=("decided again",))
    with open_store(made.url) as store:
        runs.add_verdicts(store, made.complete, [changed], runs.policy(store, made.complete))
    page = shown(decide_in(app, "Approve", "Ada", "fine"))
    assert "has changed since you opened it" in page
    with open_store(made.url) as store:
        assert queries.list_decisions(store) == ()


def test_a_decision_made_by_another_reviewer_meanwhile_is_not_overruled_unseen(made, open_page):
    app = open_page("verdict", run=made.complete, variant="int8")
    decide_in(open_page("verdict", run=made.complete, variant="int8"), "Block", "Grace", "tool calls collapse")
    page = shown(decide_in(app, "Approve", "Ada", "fine"))
    assert "Grace has decided 'block'" in page
    assert "tool calls collapse" in page
    with open_store(made.url) as store:
        assert [one.name for one in queries.list_decisions(store)] == ["Grace"]
    decide_in(app, "Approve", "Ada", "seen, and still fine")
    with open_store(made.url) as store:
        assert [one.name for one in queries.list_decisions(store)] == ["Ada", "Grace"]


@pytest.mark.parametrize("view", ["queue", "runs"])
def test_a_page_past_the_end_shows_the_last_one(made, open_page, view):
    page = shown(open_page(view, **{f"{view}_page": "99"}))
    assert made.complete in page
    assert "holds no run" not in page


def test_an_address_that_asks_for_nonsense_is_answered_plainly(made, open_page):
    options = {"run": made.complete, "variant": "int2-g32"}
    nonsense = "9" * 5000
    names = ("case", "show", "metric", "set", "sort")
    assert "1 of " in shown(open_page("verdict", **options, **dict.fromkeys(names, nonsense)))
    assert "0 cases with these filters" in shown(open_page("verdict", **options, search=nonsense[:400]))
    assert "9" * 201 not in shown(open_page("verdict", run=nonsense))


def test_a_verdict_by_another_gate_file_shows_that_policy(made, open_page):
    other = Policy(rules=(Rule(metric="exact_match", max_drop=0.07),))
    with open_store(made.url) as store:
        runs.add_verdicts(store, made.complete, decide_plain(runs.evidence(store, made.complete), other), other)
    page = shown(open_page("verdict", run=made.complete, variant="int8"))
    assert "made by another policy" in page
    assert "exact_match [pooled] max_drop 0.07" in page


def test_an_invalid_run_offers_no_approval(made, open_page):
    with open_store(made.url) as store:
        invalid = Verdict(variant="int8", word="invalid", exit=13, reasons=("3 units are missing",))
        runs.add_verdicts(store, made.complete, [invalid], runs.policy(store, made.complete))
    app = open_page("verdict", run=made.complete, variant="int8")
    assert next(button for button in app.button if button.label == "Approve").disabled
    assert "cannot be approved" in shown(app)


def test_a_run_under_way_shows_how_far_it_is(made, open_page):
    page = shown(open_page("verdict", run=made.under_way, variant="int8"))
    assert "There is no verdict yet: 6 of 60 answers are in" in page


def test_what_a_model_wrote_is_shown_as_text_with_the_invisible_made_visible(made, open_page):
    page = shown(open_page("verdict", run=made.hostile, variant="int2-g32"))
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    assert "<img" not in page
    for mark in ("\\u202e", "\\u001b", "\\u0000", "\\u200b"):
        assert mark in page
    for raw in ("\u202e", "\x1b", "\x00", "\u200b"):
        assert raw not in page


def test_a_broken_chain_is_shown_as_broken(made, open_page):
    decide_in(open_page("verdict", run=made.complete, variant="int8"), "Block", "Ada", "no")
    with open_store(made.url) as store, store.write() as connection:
        connection.execute(text("drop trigger decisions_no_update"))
        connection.execute(text("update decisions set name = 'Eve'"))
    page = shown(open_page("decisions"))
    assert "the chain of decisions is broken" in page
    assert "decision 1" in page


def empty(path):
    open_store(f"sqlite:///{path}").close()


def newer(path):
    empty(path)
    with sqlite3.connect(path) as connection:
        connection.execute("update alembic_version set version_num = '0999'")


BROKEN = {
    "missing": (lambda path: None, "no store yet"),
    "newer": (newer, "Upgrade qualgate: "),
    "not a database": (lambda path: path.write_text("not a database\n" * 100), "not a database"),
    "empty": (empty, "qualgate run|Nobody has decided"),
}
VIEWS = ("queue", "runs", "verdict", "decisions")


@pytest.mark.parametrize(("view", "state"), [(view, "empty") for view in VIEWS] + [("runs", state) for state in BROKEN])
def test_a_store_that_cannot_be_shown_is_explained_plainly(tmp_path, monkeypatch, open_page, view, state):
    prepare, said = BROKEN[state]
    prepare(tmp_path / "x.db")
    monkeypatch.setenv("QUALGATE_STORE", f"sqlite:///{tmp_path / 'x.db'}")
    page = shown(open_page(view))
    assert any(words in page for words in said.split("|"))


def test_unknown_runs_and_variants_are_explained(made, open_page):
    assert "no run 'nope'" in shown(open_page("verdict", run="nope"))
    assert "no variant 'nope'" in shown(open_page("verdict", run=made.complete, variant="nope"))


def test_the_dashboard_starts_without_torch_or_the_engine():
    code = (
        "import sys; from qualgate_app import data, charts, text; "
        "print([m for m in sys.modules if m == 'torch' or m.startswith(('qualgate.engine', 'qualgate.gate'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)
    assert done.stdout.strip() == "[]"


def four_armed(store) -> str:
    """A run whose stored verdicts are those of a four-arm comparison: speculation alone is chosen."""
    names = dict.fromkeys(("int4", "drafted", "int4+drafted"), 0.0)
    plan = make_plan(cases=4, seed=4, wrong=names)
    run = runs.begin(store, plan)
    for result, scored in make_results(plan, names):
        runs.record(store, run.run_id, result, scored)
    judged = decide_four(evidence(alike(), CHEAPER | {"int4+drafted": 7.5}), POLICY)
    runs.finish(store, run.run_id, judged, complete=True)
    return run.run_id


@pytest.mark.parametrize("variant", ["int4", "int4+drafted"])
def test_each_arm_of_a_four_arm_run_shows_which_one_to_serve(made, open_page, variant):
    with open_store(made.url) as store:
        run_id = four_armed(store)
    page = shown(open_page("verdict", run=run_id, variant=variant))
    assert "Which arm to serve: drafted" in page
    assert "1.07 times drafted&#x27;s cost per accepted answer" in page
    assert "<li>cost_per_accepted_answer [pooled] +0.29" in page
    assert "Try first: <b>neither</b>" in page


def test_decisions_that_overrule_the_gate_are_marked_and_counted(made, open_page):
    with open_store(made.url) as store:
        for variant, action in (("int8", "approve"), ("int4-g32", "approve"), ("int2-g32", "block")):
            seen = queries.run_summary(store, made.complete).verdict(variant)
            decisions.append(
                store,
                made.complete,
                variant,
                said(seen, action),
                decisions.Seen(seen.sha256),
            )
    page = shown(open_page("decisions"))
    assert "1 of these 3 overrules the gate" in page
    assert page.count("<b>overruled</b>") == 1
    assert "overrules the gate" in shown(open_page("verdict", run=made.complete, variant="int4-g32"))


def test_the_pages_of_invalid_evidence_draw_nothing_of_it(made, open_page):
    with open_store(made.url) as store:
        plan = make_plan(cases=4, seed=6)
        run = runs.begin(store, plan)
        for result, scored in make_results(plan):
            runs.record(store, run.run_id, result, scored)
        judged = decide_plain(runs.evidence(store, run.run_id), plan.policy)
        bad = [replace(one, word="invalid", exit=14, comparisons=(), drift={}) for one in judged]
        runs.finish(store, run.run_id, tuple(bad), complete=True)
    page = shown(open_page("verdict", run=run.run_id, variant="int2-g32"))
    assert "says nothing about the variant" in page
    assert "Cases" not in page
    assert "Drift (ranks" not in page
