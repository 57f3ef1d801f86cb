"""One real browser: from the queue to a recorded approval, hostile answers that stay text, and stay on the page."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import time
from collections.abc import Iterator
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Error, expect, sync_playwright
from qualgate_app.keys import FIELDS, VIEWS

from qualgate.store import decisions, labels, loads, queries
from qualgate.store.database import open_store
from tests.app.conftest import HOSTILE
from tests.app.loads import load_of
from tests.app.server import started
from tests.verification.escapes.screens import VARIANT, attacked_store

BUSY = 240_000  # ms, for a page on a machine with other work; an idle one shows it within two seconds
CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync",
]  # fmt: skip
pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None and not os.environ.get("CI"), reason="chromium is not installed"),
]


@pytest.fixture
def dashboard(made) -> Iterator[str]:
    with started(made.url) as (url, _):
        yield url


@pytest.fixture
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


def test_a_reviewer_approves_from_the_queue(made, dashboard, browser):
    page = browser.new_page()
    page.set_default_timeout(BUSY)
    expect.set_options(timeout=BUSY)
    outside: list[str] = []
    page.on(
        "request", lambda sent: None if sent.url.startswith((dashboard, "data:", "blob:")) else outside.append(sent.url)
    )
    page.goto(f"{dashboard}/queue")
    expect(page.get_by_text("5 variants")).to_be_visible()
    for _ in range(12):  # a click while the page is still being drawn is lost, and a reader clicks again
        with contextlib.suppress(Error):
            page.locator(f'a[href*="{made.complete}&variant=int8"]').first.click(timeout=5_000)
            page.wait_for_url(f"**/verdict?run={made.complete}&variant=int8", timeout=5_000)
            break
    expect(page.get_by_text("all 5 critical rules proven").first).to_be_visible()
    page.get_by_label("Your name", exact=True).fill("Ada Lovelace")
    page.get_by_label("Reason", exact=True).fill("Every flip is an improvement.")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Every flip is an improvement.").first).to_be_visible()
    # The reason is on the page as soon as it is typed; the decision is made once the store has it.
    deadline = time.monotonic() + BUSY / 1000
    with open_store(made.url) as store:
        while not queries.list_decisions(store) and time.monotonic() < deadline:
            page.wait_for_timeout(100)
        [decision] = queries.list_decisions(store)
        assert (decision.variant, decision.action, decision.name) == ("int8", "approve", "Ada Lovelace")
        decisions.check_chain(store)

    page.goto(f"{dashboard}/verdict?run={made.hostile}&variant=int2-g32")
    expect(page.locator(".qg-text").nth(3)).to_contain_text(re.compile(r"<script>.*<img src=x.*\\u202egnp"))
    page.get_by_role("button", name="Next").click()
    page.wait_for_url("**&case=*")
    assert page.evaluate("window.owned") is None
    assert outside == []


def idle(page) -> None:
    """Wait until the page is drawn."""
    page.wait_for_timeout(300)  # a key's or a click's own round begins within this time
    page.wait_for_selector(".stApp[data-test-script-state=notRunning] [data-testid=stHeading]")


def test_from_the_queue_to_a_labelled_regression_and_a_decision_takes_three_clicks(made, dashboard, browser):
    page = browser.new_page()
    page.set_default_timeout(BUSY)
    expect.set_options(timeout=BUSY)
    page.add_init_script("addEventListener('click', () => { window.clicks = (window.clicks || 0) + 1; }, true)")
    with open_store(made.url) as store:
        worst = queries.case_keys(store, made.complete, "int2-g32", queries.CaseFilter(show="lost"), "KL")[0]
    page.goto(f"{dashboard}/queue")
    expect(page.get_by_text("5 variants")).to_be_visible()
    idle(page)
    name = page.get_by_label("Your name", exact=True)
    page.keyboard.press("y")
    expect(name).to_be_focused()
    page.keyboard.type("Ada Lovelace")
    page.keyboard.press("Enter")
    idle(page)
    expect(name).to_have_value("Ada Lovelace")
    page.locator(f'a[href*="{made.complete}&variant=int2-g32"]').first.click()
    expect(page.locator("b", has_text=worst.name).first).to_be_visible()
    expect(page.get_by_text(re.compile("Nobody opened"))).to_be_visible()
    idle(page)
    page.get_by_role("button", name="Regression").click()
    expect(page.get_by_text("labelled regression by Ada Lovelace").first).to_be_visible()
    idle(page)
    page.keyboard.press("e")
    page.keyboard.type("The worst case is a real loss.")
    page.get_by_role("button", name="Block").click()
    expect(page.get_by_text("The worst case is a real loss.").first).to_be_visible()
    expect(page.get_by_text("Decide again")).to_be_visible()
    assert page.evaluate("window.clicks") == 3, "4 at most, and none is counted that nobody made"
    with open_store(made.url) as store:
        assert [(one.action, one.name) for one in queries.list_decisions(store)] == [("block", "Ada Lovelace")]
        assert [one.unit.question for one in labels.labels(store)] == [worst.name]


def test_every_view_and_the_work_on_a_case_have_keys(made, dashboard, browser):
    page = browser.new_page()
    page.set_default_timeout(BUSY)
    expect.set_options(timeout=BUSY)
    refused: list[str] = []
    page.on("console", lambda said: refused.append(said.text) if "Content Security Policy" in said.text else None)
    with open_store(made.url) as store:
        lost = queries.case_keys(store, made.complete, "int2-g32", queries.CaseFilter(show="lost"), "KL")
    page.goto(f"{dashboard}/queue")
    expect(page.get_by_text("5 variants")).to_be_visible()
    idle(page)
    page.keyboard.press("y")
    page.keyboard.type("gu jo?")  # what is typed is no key
    page.keyboard.press("Enter")
    idle(page)
    page.evaluate("document.activeElement.blur()")
    for key, view in [*VIEWS.items(), ("q", "home")]:
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(re.compile(rf"{dashboard}/({view}|{'' if view == 'home' else view})([?].*)?$"))
        idle(page)
    page.keyboard.press("o")
    page.wait_for_url("**/verdict?run=**")
    page.goto(f"{dashboard}/verdict?run={made.complete}&variant=int2-g32")
    expect(page.get_by_text(f"1 of {len(lost)}", exact=True)).to_be_visible()
    idle(page)
    for key, number in (("j", 2), ("j", 3), ("k", 2)):
        page.keyboard.press(key)
        expect(page.get_by_text(f"{number} of {len(lost)}", exact=True)).to_be_visible()
        idle(page)
    page.keyboard.press("y")
    page.keyboard.type("Ada")
    page.keyboard.press("Tab")
    idle(page)
    page.evaluate("document.activeElement.blur()")
    page.keyboard.press("1")
    expect(page.get_by_text("labelled regression by Ada").first).to_be_visible()
    idle(page)
    page.keyboard.press("t")
    expect(page.get_by_text("claimed by Ada, here now")).to_be_visible()
    idle(page)
    page.keyboard.press("?")
    expect(page.get_by_text("next and previous case of the table")).to_be_visible()
    page.keyboard.press("?")
    expect(page.get_by_text("next and previous case of the table")).to_be_hidden()
    for key, field in FIELDS.items():
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press(key)
        expect(page.get_by_label(field, exact=True)).to_be_focused()
        assert page.get_by_label(field, exact=True).input_value() in ("", "Ada"), "the key itself is not typed"
    assert refused == []
    with open_store(made.url) as store:
        assert [one.unit.question for one in labels.labels(store)] == [lost[1].name]


@pytest.mark.proof
def test_no_page_is_wider_than_its_viewport_or_breaks_its_policy_whatever_an_answer_holds(tmp_path, browser):
    run = attacked_store(tmp_path / "q.db")
    with open_store(f"sqlite:///{tmp_path / 'q.db'}") as store:
        cases = [key.name for key in queries.case_keys(store, run, VARIANT)]
        load = loads.add(store, HOSTILE, HOSTILE, "f" * 64, 0, load_of({VARIANT: 0.8}, server=HOSTILE))
    verdict = f"/verdict?run={run}&variant={quote(VARIANT)}"
    with started(f"sqlite:///{tmp_path / 'q.db'}") as (url, _):
        page = browser.new_page()
        page.set_default_timeout(BUSY)
        told: list[str] = []
        page.on("console", lambda said: told.append(said.text) if "Content Security Policy" in said.text else None)
        pages = "/", "/runs", "/decisions", "/compare", "/loads", f"/loads?load={load}"
        for path in (*pages, *(f"{verdict}&case={quote(case)}" for case in cases)):
            page.goto(url + path)
            page.wait_for_selector(".stApp[data-test-script-state=notRunning] [data-testid=stHeading]")
            if path.startswith(verdict):
                expect(page.locator(".qg-text").first).to_be_visible()
            for width in (1280, 390):
                page.set_viewport_size({"width": width, "height": 900})
                assert page.evaluate(WIDEST) <= width, (path, width)
        assert page.evaluate("window.owned") is None
        assert told == []


# px: of the page, and of the part that Streamlit scrolls in it
WIDEST = """() => Math.max(document.documentElement.scrollWidth,
  ...[...document.querySelectorAll(".stApp, .stMain, .stMainBlockContainer")].map((part) => part.scrollWidth))"""
