"""Comparing blind: nothing names an arm, sides stay, the next pair follows, and the results come at the end."""

from __future__ import annotations

import html
from dataclasses import replace

import pytest
from playwright.sync_api import expect

from qualgate.gate.verdict import decide_plain
from qualgate.records import Policy, Rule, UnitKey
from qualgate.store import people, preferences, runs
from qualgate.store.database import open_store
from qualgate.text.escaping import visible
from tests.app.conftest import HOSTILE, Made
from tests.app.server import started
from tests.app.test_browser import BUSY, browser  # noqa: F401
from tests.app.test_browser import pytestmark as needs_browser
from tests.app.test_views import press, shown
from tests.store.made import make_plan, make_results, make_run

WRONG = {"int8": 0.5, "int2-g32": 0.5}
POLICY = Policy(rules=(Rule(metric="exact_match", max_drop=0.1), Rule(metric="people.win", max_drop=0.1)))
LONG = "long " * 100_000
TEXTS = {"baseline": "the first words", "int8": HOSTILE, "int2-g32": LONG}


@pytest.fixture
def made(tmp_path, monkeypatch) -> Made:
    """A store of one run, in which every answer of an arm is the same text."""
    path = tmp_path / "q.db"
    with open_store(f"sqlite:///{path}") as store:
        plan = make_plan(cases=3, wrong=WRONG, families=("json_extract",), policy=POLICY)
        run = runs.begin(store, plan).run_id
        for result, scored in make_results(plan, WRONG):
            said = tuple(replace(one, text=TEXTS[result.arm]) for one in result.completions)
            runs.record(store, run, replace(result, completions=said), scored)
        runs.finish(store, run, decide_plain(runs.evidence(store, run), plan.policy), complete=True)
    monkeypatch.setenv("QUALGATE_STORE", f"sqlite:///{path}")
    return Made(path, run, run, run)


@pytest.fixture
def begun(made, open_page):
    """The page, once a reviewer gave their name."""

    def opened(name: str = "Ada"):
        app = open_page("blind", run=made.complete)
        assert "Compare blind" in shown(app)
        return app.text_input(key="reviewer").input(name).run()

    return opened


def stored(made) -> list[preferences.Preference]:
    with open_store(made.url) as store:
        return list(preferences.preferences(store, made.complete))


def pairs(made, reviewer: str = "Ada") -> list[preferences.Blind]:
    with open_store(made.url) as store:
        found = preferences.differing(store, made.complete)
    return sorted(found, key=lambda pair: pair.drawn(made.complete, reviewer))


def answers(app) -> list[str]:
    """Both answers, left first, as a browser's text."""
    blocks = [str(one.proto.body) for one in app.get("html") if "answer</div>" in str(one.proto.body)]
    assert ["first answer" in blocks[0], "second answer" in blocks[1]] == [True, True]
    return [html.unescape(block.split('class="qg-text">')[1].removesuffix("</div>")) for block in blocks]


def everything(app) -> str:
    """All that a browser would get."""
    texts, waiting = [str(app.query_params)], list(app._tree.children.values())
    while waiting:
        one = waiting.pop()
        texts.append(str(getattr(one, "proto", "")))
        waiting += getattr(one, "children", {}).values()
    return "\n".join(texts)


def test_a_reviewer_sees_each_pair_on_drawn_sides_and_no_name_of_an_arm(made, begun):
    app, order = begun(), pairs(made)
    assert len(order) == 6
    for number, pair in enumerate(order):
        assert f'text: "{number} of 6"' in everything(app)
        for name in ("int8", "int2-g32", "baseline", "json_extract", pair.case_hash, *pair.seals):
            assert name not in everything(app), name
        expected = [visible(TEXTS["baseline"]), visible(TEXTS[pair.unit.arm])[:20_000]]
        if pair.variant_first(made.complete, "Ada"):
            expected.reverse()
        assert [text[:1000] for text in answers(app)] == [text[:1000] for text in expected]
        assert "won" not in shown(app)
        press(app, ("First is better", "Tie", "Second is better")[number % 3]).run()
    assert [(one.unit, one.preferred) for one in stored(made)] == [
        (pair.unit, ("first", "tie", "second")[number % 3]) for number, pair in enumerate(order)
    ]
    assert "You have compared 6 pairs" in str([one.value for one in app.success])
    assert "won" not in shown(app), "the last choice can still be taken back"
    assert "int8" in everything(press(app, "Stop and show the results").run())


def test_a_long_answer_is_shown_whole_when_asked_for_and_a_hostile_one_is_text(made, begun):
    app = begun()
    for _ in range(6):
        left, right = answers(app)
        if max(len(left), len(right)) > 19_000:
            assert max(len(left), len(right)) < 21_000
            assert max(map(len, answers(app.toggle[0].set_value(True).run()))) == len(LONG)
        else:
            assert "<script>window.owned" not in everything(app)
            assert "&lt;script&gt;" in everything(app)
        press(app, "Tie").run()


def test_the_last_choice_is_taken_back_and_another_reviewer_sees_nothing_of_it(made, begun):
    app, order = begun(), pairs(made)
    press(app, "Tie").run()
    press(app, "Back").run()
    expected = [TEXTS["baseline"], TEXTS[order[0].unit.arm]]
    if order[0].variant_first(made.complete, "Ada"):
        expected.reverse()
    assert [text[:9] for text in answers(app)] == [text[:9] for text in expected]
    press(app, "First is better").run()
    assert [(one.unit, one.preferred) for one in stored(made)] == [(order[0].unit, "first")]
    assert 'text: "1 of 6"' in everything(app)
    assert 'text: "0 of 6"' in everything(begun("Bob"))


def test_who_stops_sees_the_results_and_compares_no_more(made, begun):
    app = begun()
    press(app, "First is better").run()
    page = shown(press(app, "Stop and show the results").run())
    assert "What people preferred" in page
    assert "1 of 3" in page
    assert not [one for one in app.button if one.label == "Tie"]
    assert "What people preferred" in shown(begun()), "and after a new start"
    assert "What people preferred" not in shown(begun("Bob"))


def test_what_the_store_refuses_is_said_and_the_pair_stays(made, begun):
    app = begun()
    with open_store(made.url) as store:
        people.grant(store, people.Grant(person="ada@x.org", role="labeller", by="test"))
    page = shown(press(app, "Tie").run())
    assert "Comparing takes the role labeller" in page
    assert stored(made) == []


def test_a_run_under_way_has_nothing_to_compare(made, open_page):
    with open_store(made.url) as store:
        under_way = make_run(store, make_plan(cases=4, job_rows=6), jobs=1)
    app = open_page("blind", run=under_way)
    app.text_input(key="reviewer").input("Ada").run()
    assert "There is nothing to compare" in str([one.value for one in app.info])
    assert not [one for one in app.button if one.label == "Tie"]


@pytest.mark.browser
@needs_browser[1]
def test_what_a_browser_gets_names_no_arm_and_keys_choose(made, browser):  # noqa: F811
    with started(made.url) as (url, _):
        page = browser.new_page()
        page.set_default_timeout(BUSY)
        expect.set_options(timeout=BUSY)
        came: list[bytes] = []

        def keep(frame: str | bytes) -> None:
            came.append(frame.encode() if isinstance(frame, str) else frame)

        page.on("websocket", lambda socket: socket.on("framereceived", keep))
        page.on("response", lambda response: came.append(response.url.encode()))
        page.goto(f"{url}/blind?run={made.complete}")
        page.get_by_label("Your name").fill("Ada")
        page.keyboard.press("Enter")
        page.get_by_role("heading", name="Compare blind").click()  # out of the field, where keys are letters of a name
        for number, key in enumerate(("1", "0", "2")):
            expect(page.get_by_text(f"{number} of 6", exact=True)).to_be_visible()
            page.get_by_role("button", name="Tie").hover()
            page.keyboard.press(key)
        expect(page.get_by_text("3 of 6", exact=True)).to_be_visible()
        source = page.content()
        assert page.evaluate("window.owned") is None
        for name in WRONG:
            assert name not in source
            assert name.encode() not in b"\n".join(came)
        assert "baseline" not in page.inner_text("body").lower()
        assert page.url == f"{url}/blind?run={made.complete}"
    order = pairs(made)[:3]
    assert [(one.unit, one.preferred) for one in stored(made)] == list(
        zip([UnitKey(*_key(pair)) for pair in order], ("first", "tie", "second"), strict=True)
    )


def _key(pair: preferences.Blind) -> tuple[str, str, str, int]:
    return pair.unit.arm, pair.unit.evalset, pair.unit.case_id, pair.unit.repeat
