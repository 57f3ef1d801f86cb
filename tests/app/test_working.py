"""The dashboard as a place of work: claims, what a reviewer has seen, one name, any two runs, and addresses."""

from __future__ import annotations

from urllib.parse import parse_qsl

import pytest
from qualgate_app import checks

from qualgate.store import claims, openings, queries
from qualgate.store.database import open_store
from tests.app.test_cases import VARIANT, listed, opened, stored  # noqa: F401 (a fixture)
from tests.app.test_labels import label_in, recorded
from tests.app.test_views import press, shown
from tests.store.made import make_plan, make_run


@pytest.fixture(autouse=True)
def _patient(monkeypatch):
    monkeypatch.setattr(checks, "WAITED", 60.0)  # s; AppTest has no clock that draws the page again


def named(app, name: str = "Ada"):
    app.text_input(key="reviewer").input(name)
    return app.run()


def claim(made, variant: str, who: str, **more) -> None:
    with open_store(made.url) as store:
        claims.claim(store, made.complete, variant, who, name=more.pop("by", who), **more)


def holder(made, variant: str = VARIANT) -> str | None:
    with open_store(made.url) as store, store.read() as connection:
        found = claims.claims(connection).get((made.complete, variant))
    return found and found.holder


def links(app, name: str) -> list[dict[str, str]]:
    """The queries of the links with this label."""
    return [dict(parse_qsl(one.proto.query_string)) for one in app.get("page_link") if one.proto.label == name]


def test_a_verdict_is_claimed_seen_in_the_queue_and_released(made, opened, open_page):  # noqa: F811
    app = press(named(opened()), "Claim").run()
    assert holder(made) == "Ada"
    assert "claimed by Ada, here now" in shown(app)
    assert "claimed by Ada, here now" in shown(open_page())
    press(app, "Release").run()
    assert holder(made) is None
    assert "Nobody reviews this verdict" in shown(app)


def test_a_claim_without_a_name_and_one_of_what_another_holds_are_refused(made, opened):  # noqa: F811
    assert "a claim needs the name" in shown(press(opened(), "Claim").run())
    app = named(opened())
    claim(made, VARIANT, "Bob")
    assert "Bob holds" in shown(press(app, "Claim").run())
    assert holder(made) == "Bob"
    assert "Claim" not in [button.label for button in app.button], "only an assignment takes it over"


def test_an_assignment_is_shown_and_filtered_by_and_next_skips_what_others_hold(made, opened, open_page):  # noqa: F811
    app = named(opened())
    app.text_input(key="assign_to").input("Grace")
    press(app, "Assign").run()
    assert "assigned to Grace by Ada" in shown(app)
    with open_store(made.url) as store:
        lines = [(line.run_id, line.variant) for line in queries.queue(store)]
        following = lines[(lines.index((made.complete, VARIANT)) + 1) % len(lines)]
        claims.claim(store, *following, "Bob", name="Bob")
    [link] = [one.proto for one in app.run().get("page_link") if one.proto.label.startswith("Next in queue")]
    assert dict(parse_qsl(link.query_string)) != {"run": following[0], "variant": following[1]}
    queue = named(open_page(of="mine"), "Grace")
    assert [one["variant"] for one in links(queue, "Review")] == [VARIANT]
    assert {"run": made.complete, "variant": VARIANT} not in links(named(open_page(of="free")), "Review")
    assert "No verdict is yours." in shown(named(open_page(of="mine"), "Cleo"))


def test_an_open_case_is_seen_by_its_reader_and_the_form_counts_what_nobody_opened(made, opened):  # noqa: F811
    lost, flips = stored(made, show="lost"), 0
    with open_store(made.url) as store:
        flips = len(queries.flipped_answers(store, made.complete, VARIANT))
    app = named(opened())
    assert f"0 of {flips} seen" in shown(app), "the first case is there, but nobody has chosen it"
    assert f"Nobody opened {len(lost)} of {len(lost)} regressions" in shown(app)
    page = shown(press(app, "Next").run())
    assert f"2 of {flips} seen" in page, "the one that was left, and the one that is open"
    assert f"Nobody opened {len(lost) - 2} of {len(lost)} regressions" in page
    other = named(opened(seen="not seen"), "Bob")
    assert f"0 of {flips} seen" in shown(other), "each reviewer has their own"
    assert f"Nobody opened {len(lost) - 2} of {len(lost)}" in shown(other)
    again = named(opened(seen="not seen"))
    assert listed(again) == lost[2:10]
    again.button(key="open 1").click().run()
    assert listed(again)[:2] == lost[2:4], "it stays while it is open, and the one that was passed over is not seen"
    press(again, "Next").run()
    assert listed(again)[:2] == [lost[2], lost[4]]
    with open_store(made.url) as store:
        assert len(openings.opened(store, made.complete, VARIANT)["Ada"]) == 4
    again.selectbox(key="seen").select("seen").run()
    assert listed(again) == [*lost[:2], *lost[3:5]]


def test_what_is_opened_before_a_name_is_typed_is_recorded_with_it(made, opened):  # noqa: F811
    app = press(opened(), "Next").run()
    with open_store(made.url) as store:
        assert openings.opened(store, made.complete, VARIANT) == {}
        press(named(app), "Next").run()
        assert len(openings.opened(store, made.complete, VARIANT)["Ada"]) == 3


def test_a_comment_is_written_beside_the_case_and_leaves_its_label(made, opened):  # noqa: F811
    app = label_in(opened(), "Flaky")
    page = shown(label_in(app, "Comment", note="twice *this* week"))
    assert "commented by Ada on 20" in page
    assert ": twice *this* week</div>" in page
    assert "labelled flaky by Ada" in page
    assert app.text_input(key="label_note").value == ""
    assert [word for _, word, *_ in recorded(made)] == ["flaky"]


def test_the_name_of_a_label_is_that_of_the_decision(made, opened):  # noqa: F811
    app = label_in(opened(), "Regression", name="Grace")
    assert "You decide as Grace" in shown(app.run())
    app.text_area(key="decide_reason").input("too many losses")
    press(app, "Block").run()
    with open_store(made.url) as store:
        assert [one.name for one in queries.list_decisions(store)] == ["Grace"]


def test_any_two_runs_are_compared_by_an_address_that_holds_both_and_the_filters(made, open_page):
    wrong = {VARIANT: 0.0, "int8": 0.4}
    with open_store(made.url) as store:
        later = make_run(store, make_plan(cases=60, wrong=wrong), wrong)
        lost = {
            run: {f"{case[0]}/{case[1]}" for case in queries.flipped_answers(store, run, "int8", "lost")}
            for run in (made.complete, later)
        }
    new, gone = lost[later] - lost[made.complete], lost[made.complete] - lost[later]
    app = open_page("compare", before=made.complete, after=later, arm="int8", kind="new")
    page = shown(app).replace("\\", "")
    assert f"{made.complete} → {later}" in page
    assert f"int8: {len(new)} cases, in run {later}" in page
    cases = {one["case"]: one for one in (dict(parse_qsl(x.proto.query_string)) for x in app.get("page_link"))}
    assert set(cases) == set(sorted(new)[:50])
    assert cases[min(new)] == {"run": later, "variant": "int8", "case": min(new)}
    assert "arm int4-g32: only in" in page, "what was not judged alike is named"
    press(app, "Swap").run()
    assert (app.query_params["before"], app.query_params["after"]) == (later, made.complete)
    assert f"int8: {len(gone)} case" in shown(app)
    app = open_page("compare", before=made.complete, after=later, arm=VARIANT, kind="gone")
    page = shown(app).replace("\\", "")
    assert f"in run {made.complete}" in page
    assert "int8 new: " not in page, "only the variant of the address"
    with open_store(made.url) as store:
        assert queries.latest_run(store) == later
    assert f" → {later}" in shown(open_page("compare")), "the newest run by default"


def test_runs_that_are_not_there_and_damaged_ones_are_not_compared(made, open_page):
    assert "no run" in shown(open_page("compare", before=made.complete, after="nonsense"))
    with open_store(made.url) as store, store.write() as connection:
        connection.exec_driver_sql("update units set text = 'x' where arm = 'int8' and text is not null")
    page = shown(open_page("compare", before=made.complete, after=made.complete))
    assert "Stored evidence is not what was recorded" in page
    assert "regressions" not in page


def test_a_verdict_shows_its_own_trend_and_links_to_the_comparison(made, open_page):
    with open_store(made.url) as store:
        later = make_run(store, make_plan(cases=60), {"int8": 0.3})
    app = open_page("verdict", run=later, variant="int8")
    assert {"before": made.complete, "after": later} in links(app, "Compare")
    app.toggle(key="trend").set_value(True).run()
    page = shown(app)
    assert "int8 exact_match" in page
    assert "int2-g32 exact_match" not in page, "of this variant alone"
    assert "int8 exact_match" in shown(open_page("verdict", run=later, variant="int8", trend="true"))
