"""200 payloads as answers, ids, reasons, labels, decisions: no view and no bundle runs one or asks another server."""

from __future__ import annotations

from urllib.parse import quote

import pytest
from playwright.sync_api import Page
from qualgate_app.keys import SCRIPT

from qualgate.errors import UsageError
from qualgate.records import UnitKey
from qualgate.report.formats import rendered
from qualgate.report.summary import load_report
from qualgate.store import labels, loads, queries
from qualgate.store.database import open_store
from qualgate.store.labels import LONGEST_NAME, LONGEST_NOTE, WORDS
from tests.app.loads import load_of
from tests.app.server import started
from tests.app.test_accessible import WHOLE, whole
from tests.app.test_browser import BUSY, browser, pytestmark  # noqa: F401 (a fixture, and when it runs)
from tests.verification.escapes.payloads import PAYLOADS
from tests.verification.escapes.screens import VARIANT, attacked_store

# Elements that no view makes of its own: what a payload would have become.
MADE = """() => [...document.querySelectorAll(
  ".stApp script, .stApp object, .stApp embed, .stApp base, .stApp form[action], .stApp video, .stApp math, "
  + ".stApp link, .stApp meta, .stApp details[ontoggle], .stApp a[href^='javascript'], .stApp [onerror], "
  + ".stApp [onload], .stApp [onfocus], .stApp [href*='outside.invalid'], .stApp [src*='outside.invalid']"
)].map((one) => one.outerHTML.slice(0, 200))"""


OF_KEYS = f"<script>{SCRIPT}</script>"[:200]  # the one script of ours, which the server's policy knows by its hash


def test_there_are_200_of_them():
    assert len({*PAYLOADS.values()}) == 200


@pytest.mark.proof
def test_no_payload_runs_or_asks_another_server_in_any_view_or_bundle(tmp_path, browser):  # noqa: F811
    path = tmp_path / "q.db"
    runs = [attacked_store(path, PAYLOADS) for _ in range(2)]  # the later one shows what changed since the earlier
    url = f"sqlite:///{path}"
    with open_store(url) as store:
        keys = queries.case_keys(store, runs[1], VARIANT)
        labelled = sum(
            _is_labelled(store, run, key, text)
            for run in runs
            for key, text in zip(keys, PAYLOADS.values(), strict=True)
        )
        load = loads.add(store, PAYLOADS[max(PAYLOADS)], "x", "f" * 64, 0, load_of({VARIANT: 0.8}, server="<script>"))
    assert len(keys) == 200
    assert labelled > 300
    (tmp_path / "bundle.html").write_text(rendered(load_report(url, runs[1]), "html"), encoding="utf-8")
    page = browser.new_page()
    page.set_default_timeout(BUSY)
    told: list[str] = []
    page.on("dialog", lambda dialog: (told.append(dialog.message), dialog.dismiss()))
    page.on("console", lambda said: told.append(said.text) if "Content Security Policy" in said.text else None)
    with started(url) as (address, _):
        allowed = (address, address.replace("http", "ws"), "data:", "blob:", "about:", "file:")
        page.on("request", lambda sent: None if sent.url.startswith(allowed) else told.append(sent.url))
        for view in ("/", "/runs", "/nights", "/decisions", "/loads", f"/loads?load={load}"):
            whole(page, address + view)
            _check(page, told, view)
        seen = set()
        whole(page, f"{address}/verdict?run={runs[1]}&variant={quote(VARIANT)}&show=every+case&sort=case")
        page.wait_for_selector(".qg-text")
        while not (button := page.get_by_role("button", name="Next")).is_disabled():  # through all pages of the table
            before = page.url
            button.click()
            page.wait_for_url(lambda now, before=before: now != before)
            page.wait_for_selector(WHOLE)
            seen.add(page.url)
            _check(page, told, page.url)
        assert len(seen) == 199
    page.goto((tmp_path / "bundle.html").as_uri())
    assert page.evaluate("() => document.scripts.length") == 0
    _check(page, told, "bundle")


def _is_labelled(store, run: str, key: queries.CaseKey, text: str) -> bool:
    name = "".join(mark for mark in text if mark.isprintable())[:LONGEST_NAME]
    try:
        labels.set_label(store, run, UnitKey(VARIANT, *key.case), WORDS[0], name=name, note=text[:LONGEST_NOTE])
    except UsageError:  # a name that nobody can read is refused
        return False
    return True


def _check(page: Page, told: list[str], where: str) -> None:
    assert page.evaluate("window.owned") is None, where
    assert told == [], where
    assert [one for one in page.evaluate(MADE) if one != OF_KEYS] == [], where
