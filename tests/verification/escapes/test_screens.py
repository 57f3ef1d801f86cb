"""What a model wrote hides nothing on the screens that show it: reports, the terminal, the dashboard."""

from __future__ import annotations

import io
import re
from contextlib import redirect_stdout

import pytest
from streamlit.testing.v1 import AppTest

from qualgate.report.formats import FORMATS, rendered
from qualgate.report.summary import load_report
from qualgate.report.terminal import print_report
from qualgate.text.escaping import visible
from tests.app.conftest import MAIN
from tests.depth import DEEP, with_proofs
from tests.verification.escapes.screens import SCREENS, VARIANT, attacked_store


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> tuple[str, str]:
    path = tmp_path_factory.mktemp("screens") / "q.db"
    return f"sqlite:///{path}", attacked_store(path)


def hidden(text: str) -> set[str]:
    """The characters of a text that nobody sees; what `visible` does about commands to a runner is not of them."""
    return {mark for mark in set(text) - {"\t", "\n"} if visible(mark) != mark} | set(
        re.findall("[\ufe00-\ufe0f]", text)
    )


@pytest.mark.parametrize("form", ["terminal", *FORMATS])
def test_no_report_holds_what_nobody_sees(store, form: str) -> None:
    report = load_report(*store)
    if form == "terminal":
        out = io.StringIO()
        with redirect_stdout(out):
            print_report(report)
        text = out.getvalue() + "\n".join(report.lines())
    else:
        text = rendered(report, form)
    assert hidden(text) == set()
    assert "approve" not in re.findall(r'class="chip (\w+)', text)


VIEWS = ("verdict", "queue", "runs", "decisions")


@pytest.mark.parametrize("view", with_proofs(VIEWS, VIEWS[1:]))
def test_no_page_holds_what_nobody_sees(store, view: str, monkeypatch) -> None:
    monkeypatch.setenv("QUALGATE_STORE", store[0])
    app = AppTest.from_file(str(MAIN), default_timeout=30)
    numbers = range(1, len(SCREENS) + 1, 1 if DEEP else 5) if view == "verdict" else (0,)
    for number in numbers:
        if view == "verdict":
            app.query_params |= {"run": store[1], "variant": VARIANT, "flip": str(number)}
        page = app.run() if view == "queue" else app.switch_page(f"views/{view}.py").run()
        assert not page.exception
        for kind in ("html", "markdown", "caption", "text", "code", "header", "selectbox"):
            for one in page.get(kind):
                text = one.proto.body if kind == "html" else str(one.value)
                assert hidden(text) == set(), kind
                assert hidden("".join(getattr(one, "options", ()))) == set()
