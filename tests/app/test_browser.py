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

from qualgate.store import decisions, loads, queries
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
        pages = "/", "/runs", "/decisions", "/loads", f"/loads?load={load}"
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
