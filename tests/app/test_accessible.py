"""Every view by axe-core in a real browser, and a review by the keyboard alone."""

from __future__ import annotations

from importlib.resources import files

import pytest
from playwright.sync_api import Page, expect

from qualgate.store import decisions, labels, loads, queries
from qualgate.store.database import open_store
from tests.app.loads import load_of
from tests.app.server import started
from tests.app.test_browser import BUSY, browser, pytestmark  # noqa: F401 (a fixture, and when it runs)
from tests.store.made import said

WHOLE = ".stApp[data-test-script-state=notRunning] :is([data-testid=stHeading], .qg-title)"
SERIOUS = ("serious", "critical")
AXE = """async () => (await axe.run(document, {resultTypes: ["violations"]})).violations.map(
  (one) => [one.impact, one.id, one.nodes.map((node) => node.html.slice(0, 300))])"""


@pytest.fixture
def filled(made):
    """With a decision, a label and a load."""
    with open_store(made.url) as store:
        seen = queries.run_summary(store, made.complete).verdict("int2-g32")
        decisions.append(store, made.complete, "int2-g32", said(seen, "block"), decisions.Seen(seen.sha256))
        key = queries.case_keys(store, made.complete, "int2-g32", queries.CaseFilter(show="lost"), "KL")[0]
        unit = labels.UnitKey("int2-g32", *key.case)
        labels.set_label(store, made.complete, unit, "regression", name="Ada", note="a digit is lost")
        load = loads.add(store, "support.yaml", "version: 1", "f" * 64, 0, load_of({"awq": 0.8}))
    return made, load


def whole(page: Page, address: str) -> None:
    page.goto(address)
    page.wait_for_selector(WHOLE)
    page.wait_for_function("() => !document.querySelector('[data-testid=stSpinner], [data-testid=stSkeleton]')")


def views(made, load: str) -> list[str]:
    return [
        *("/", "/runs", "/nights", "/decisions", "/loads", f"/loads?load={load}", "/verdict?run=nope"),
        *(f"/verdict?run={made.complete}&variant={variant}" for variant in ("int8", "int2-g32")),
        f"/verdict?run={made.under_way}&variant=int8",
        f"/verdict?run={made.hostile}&variant=int2-g32",
        f"/compare?after={made.complete}&before={made.hostile}",
        f"/blind?run={made.complete}&variant=int2-g32",
    ]


@pytest.mark.proof
def test_axe_finds_nothing_serious_in_any_view(filled, browser):  # noqa: F811
    made, load = filled
    axe = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    found = []
    with started(made.url) as (url, _):
        for scheme, width in (("light", 1280), ("dark", 1280), ("light", 390)):
            context = browser.new_context(color_scheme=scheme, viewport={"width": width, "height": 900})
            page = context.new_page()
            page.set_default_timeout(BUSY)
            for view in views(made, load):
                whole(page, url + view)
                page.evaluate(axe)
                found += [(view, scheme, width, *one) for one in page.evaluate(AXE) if one[0] in SERIOUS]
            context.close()
    assert found == []


# Not a part that scrolls, which the tab key reaches too and whose text is all that is in it.
FOCUSED = """() => { const one = document.activeElement;
  return /^(A|BUTTON|INPUT|TEXTAREA)$/.test(one.tagName)
    ? [one.ariaLabel || one.textContent, one.getAttribute("href") || ""] : ["", ""]; }"""


def tab_to(page: Page, what: str) -> None:
    """Go on by the tab key until what has the focus begins with these words, or leads to an address with them."""
    for _ in range(300):
        page.keyboard.press("Tab")
        words, address = page.evaluate(FOCUSED)
        if words.startswith(what) or what in address:
            return
    raise AssertionError(f"no tab leads to {what!r}")


@pytest.mark.proof
def test_a_variant_is_reviewed_and_blocked_by_the_keyboard_alone(made, browser):  # noqa: F811
    with started(made.url) as (url, _):
        page = browser.new_page()
        page.set_default_timeout(BUSY)
        expect.set_options(timeout=BUSY)
        whole(page, f"{url}/queue")
        tab_to(page, f"run={made.complete}&variant=int2-g32")
        page.keyboard.press("Enter")
        page.wait_for_url("**/verdict?**")
        expect(page.get_by_role("button", name="Block")).to_be_enabled()
        tab_to(page, "Next")
        page.keyboard.press("Enter")
        page.wait_for_url("**&case=*")
        expect(page.get_by_role("button", name="Block")).to_be_enabled()
        tab_to(page, "Your name")
        page.keyboard.type("Ada")
        tab_to(page, "Reason")
        page.keyboard.type("a digit is lost in one of five answers")
        tab_to(page, "Block")
        page.keyboard.press("Enter")
        expect(page.get_by_text("by Ada (unauthenticated)")).to_be_visible()
    with open_store(made.url) as store:
        assert [(one.action, one.name) for one in queries.list_decisions(store)] == [("block", "Ada")]


# What a mouse can press, but for what is chosen by arrows within a group and what only its own field opens.
PRESSED = """() => [...document.querySelectorAll("a[href], button, input, textarea, select, summary")].filter((one) =>
  one.checkVisibility({visibilityProperty: true, opacityProperty: true}) && !one.disabled && one.tabIndex >= 0
  && one.getClientRects().length && one.type !== "radio" && !one.closest("[aria-hidden=true], [inert]"))
  .forEach((one) => one.setAttribute("data-pressed", one.ariaLabel || one.textContent || one.name || one.type))"""
LEFT = "() => [...document.querySelectorAll('[data-pressed]')].map((one) => one.dataset.pressed)"
LEAVE = """() => { const one = document.activeElement; const left = one.hasAttribute("data-pressed");
  one.removeAttribute("data-pressed"); return left; }"""


@pytest.mark.proof
def test_the_tab_key_reaches_all_that_can_be_pressed_in_every_view(filled, browser):  # noqa: F811
    made, load = filled
    unreached = {}
    with started(made.url) as (url, _):
        page = browser.new_page()
        page.set_default_timeout(BUSY)
        for view in views(made, load):
            whole(page, url + view)
            page.evaluate(PRESSED)
            reached = 0
            for _ in range(2 * len(page.evaluate(LEFT)) + 40):  # parts that scroll take the focus too
                page.keyboard.press("Tab")
                reached += page.evaluate(LEAVE)
            assert reached > 3, view
            if left := page.evaluate(LEFT):
                unreached[view] = left
    assert unreached == {}
