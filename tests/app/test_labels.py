"""Labels on the page of a variant: set by one click, shown in the table and on the next run's page, and filtered by."""

from __future__ import annotations

import pytest

from qualgate.records import UnitKey
from qualgate.store import labels, queries
from qualgate.store.database import open_store
from tests.app.conftest import HOSTILE
from tests.app.test_cases import VARIANT, listed, opened, stored  # noqa: F401 (a fixture)
from tests.app.test_views import decide_in, press, shown
from tests.store.made import make_plan, make_run
from tests.store.tampering import tamper


def recorded(made) -> list[tuple[str, str, str, str]]:
    with open_store(made.url) as store:
        return [(one.unit.question, one.label, one.name, one.note) for one in labels.labels(store)]


def cells(app) -> list[str]:
    """The column of labels."""
    rows = [str(one.proto.body) for one in app.get("html") if 'data-name="label"' in str(one.proto.body)]
    return [row.split('data-name="label"><div>')[1].split("</div>")[0] for row in rows]


def label_in(app, button: str, name: str | None = "Ada", note: str = ""):
    if name is not None:
        app.text_input(key="reviewer").input(name)
    app.text_input(key="label_note").input(note)
    return press(app, button).run()


def flips(made) -> int:
    with open_store(made.url) as store:
        return len(queries.flipped_answers(store, made.complete, VARIANT))


def test_a_flip_is_labelled_by_one_click_which_the_table_and_the_progress_show(made, opened):  # noqa: F811
    app, lost = opened(), stored(made, show="lost")
    assert f"0 of {flips(made)} flips labelled" in shown(app)
    assert cells(app) == ["–"] * 8
    page = shown(label_in(app, "Wrong reference", note="two are right"))
    assert recorded(made) == [(lost[0], "wrong reference", "Ada", "two are right")]
    assert "labelled wrong reference by Ada on 20" in page
    assert ": two are right</div>" in page
    assert cells(app) == ["<b>wrong reference</b>", *["–"] * 7]
    assert f"1 of {flips(made)} flips labelled" in page
    press(app, "Next").run()
    assert app.text_input(key="reviewer").value == "Ada", "the name is typed once"
    assert app.text_input(key="label_note").value == ""
    label_in(app, "Flaky", name=None)
    assert recorded(made)[1] == (lost[1], "flaky", "Ada", "")
    page = shown(press(app, "Remove label").run())
    assert f"1 of {flips(made)} flips labelled" in page
    assert "Remove label" not in page
    assert [word for _, word, *_ in recorded(made)] == ["wrong reference"]


def test_the_name_of_a_decision_and_that_of_a_label_are_one(made, opened):  # noqa: F811
    app = opened()
    decide_in(app, "Block", "Grace", "too many losses")
    press(app, "Next").run()
    assert app.text_input(key="reviewer").value == "Grace"


def test_the_table_is_filtered_by_label(made, opened):  # noqa: F811
    lost = stored(made, show="lost")
    with open_store(made.url) as store:
        for name, word in zip(lost, ("acceptable", "flaky", "flaky"), strict=False):
            evalset, _, case_id = name.partition("/")
            labels.set_label(store, made.complete, UnitKey(VARIANT, evalset, case_id), word, name="Ada")
    app = opened(label="unlabelled")
    assert listed(app) == lost[3:11]
    assert app.query_params["label"] == "unlabelled"
    label_in(app, "Regression")
    assert listed(app) == lost[4:12], "the next one is at hand"
    app.selectbox(key="label").select("flaky").run()
    assert listed(app) == lost[1:3]
    app.selectbox(key="label").select("wrong reference").run()
    assert "0 cases with these filters" in shown(app)


def test_the_next_run_shows_the_label_and_that_the_answer_is_another(made, opened, open_page):  # noqa: F811
    app, lost = opened(), stored(made, show="lost")
    label_in(app, "Acceptable", note="shorter, and right")
    with open_store(made.url) as store:
        later = make_run(store, make_plan(cases=60))
        wrong = {VARIANT: 1.0, "int8": 0.0}
        other = make_run(store, make_plan(cases=60, wrong=wrong), wrong)
        texts = []
        for run in (made.complete, later, other):
            evalset, _, case_id = lost[0].partition("/")
            texts.append(queries.case_detail(store, run, VARIANT, evalset, case_id).variant.text)
    assert texts[0] == texts[1]
    for run, text in ((later, texts[1]), (other, texts[2])):
        app = open_page("verdict", run=run, variant=VARIANT, case=lost[0])
        note = "" if text == texts[0] else ", about another answer"
        assert f"(run {made.complete}, {VARIANT}{note}): shorter, and right" in shown(app)
        assert '<span class="quiet">acceptable in another run</span>' in cells(app)
        assert "0 of " in shown(app).partition(" flips labelled")[0][-12:], "the new answer still wants a label"


@pytest.mark.parametrize("name", ["", " \u200b"])
def test_a_label_without_a_name_is_refused_and_says_so(made, opened, name):  # noqa: F811
    page = shown(label_in(opened(), "Flaky", name=name))
    assert "Nothing was recorded." in page
    assert "needs the name" in page
    assert recorded(made) == []


def test_hostile_names_and_notes_are_text(made, opened):  # noqa: F811
    hostile = HOSTILE.replace("\x00", "")
    page = shown(label_in(opened(), "Flaky", name=hostile, note=hostile))
    assert recorded(made)[0][2:] == (hostile, hostile)
    assert "<script>" not in page
    assert "&lt;script&gt;" in page
    assert "\\u202egnp.exe" in page
    for invisible in ("\u202e", "\u200b", "\x1b"):
        assert invisible not in page


def test_a_changed_label_is_named_in_place_of_the_cases(made, opened):  # noqa: F811
    label_in(opened(), "Regression")
    with open_store(made.url) as store:
        tamper(store, "update sealed set body_json = replace(body_json, 'regression', 'acceptable')")
    page = shown(opened())
    assert "Stored evidence is not what was recorded" in page
    assert f"label {VARIANT}: " in page
