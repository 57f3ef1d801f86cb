"""Two reviewers, two tabs, a double click, a reload and kill -9 in the middle of a write, in a real browser: one
decision at most, and the page shows what the store has."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable

import pytest
from playwright.sync_api import Page, expect

from qualgate.store import decisions, queries
from qualgate.store.database import open_store
from tests.app.server import free_port, started
from tests.app.test_browser import BUSY, browser, pytestmark  # noqa: F401 (a fixture, and when it runs)
from tests.benchmarks.memory import descendants

VARIANT = "int8"


def recorded(made) -> list[tuple[str, str]]:
    with open_store(made.url) as store:
        decisions.check_chain(store)
        return [(one.action, one.name) for one in queries.list_decisions(store)]


@pytest.fixture
def tab(browser) -> Callable[..., Page]:  # noqa: F811
    """What opens the variant's page in a browser of somebody's own, with their name and reason filled in."""

    def opened(address: str, made, name: str) -> Page:
        page = browser.new_context().new_page()
        page.set_default_timeout(BUSY)
        expect.set_options(timeout=BUSY)
        page.goto(f"{address}/verdict?run={made.complete}&variant={VARIANT}")
        expect(page.get_by_role("button", name="Approve")).to_be_enabled()
        page.get_by_label("Your name", exact=True).fill(name)
        page.get_by_label("Reason", exact=True).fill(f"{name} looked at all of it")
        return page

    return opened


@pytest.mark.proof
def test_of_two_reviewers_the_second_learns_of_the_first_and_a_double_click_is_one_decision(made, tab):
    with started(made.url) as (address, _):
        ada, grace = (tab(address, made, name) for name in ("Ada", "Grace"))
        ada.get_by_role("button", name="Approve").dblclick()
        expect(ada.get_by_text("by Ada (unauthenticated)")).to_be_visible()
        grace.get_by_role("button", name="Block").click()
        expect(grace.get_by_text("Ada has decided 'approve'")).to_be_visible()
        expect(grace.get_by_text("Nothing was recorded.")).to_be_visible()
        expect(grace.get_by_text("by Ada (unauthenticated)")).to_be_visible()
        assert recorded(made) == [("approve", "Ada")]


@pytest.mark.proof
def test_clicks_in_two_tabs_at_the_same_moment_and_a_reload_leave_one_decision_which_both_show(made, tab):
    with started(made.url) as (address, _):
        ada, grace = (tab(address, made, name) for name in ("Ada", "Grace"))
        with open_store(made.url) as store, store.write():  # both wait for it
            ada.get_by_role("button", name="Approve").click()
            grace.get_by_role("button", name="Approve").click()
            expect(ada.get_by_role("button", name="Approve")).to_be_disabled()
            ada.reload()
        for page in (ada, grace):
            expect(page.get_by_text("(unauthenticated)").first).to_be_visible()
        [(action, name)] = recorded(made)
        assert action == "approve"
        for page in (ada, grace):
            expect(page.get_by_text(f"by {name} (unauthenticated)")).to_have_count(1)


@pytest.mark.proof
def test_a_server_killed_in_the_middle_of_a_write_leaves_nothing_that_a_page_shows_as_decided(made, tab):
    port = free_port()
    with started(made.url, port=port) as (address, command):
        page = tab(address, made, "Ada")
        with open_store(made.url) as store, store.write():
            page.get_by_role("button", name="Approve").click()
            expect(page.get_by_role("button", name="Approve")).to_be_disabled()
            for process in descendants(command.pid):
                os.kill(process, signal.SIGKILL)
            command.wait()
    assert recorded(made) == []
    with started(made.url, port=port) as (address, _):
        page.goto(f"{address}/verdict?run={made.complete}&variant={VARIANT}")
        expect(page.get_by_role("button", name="Approve")).to_be_enabled()
        expect(page.get_by_text("(unauthenticated)")).to_have_count(0)
        expect(page.get_by_text("Your decision", exact=True)).to_be_visible()
