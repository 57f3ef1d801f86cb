"""One real browser: from the queue to a recorded approval, and a hostile answer that stays text."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Error, expect, sync_playwright
from qualgate_app import STREAMLIT_FLAGS

from qualgate.store import decisions, queries
from qualgate.store.database import open_store

MAIN = Path(__file__).resolve().parents[2] / "app" / "main.py"
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
    """The dashboard as `qualgate dashboard` starts it, on a free port."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = [part for name, value in STREAMLIT_FLAGS.items() for part in (f"--{name}", value)]
    server = subprocess.Popen(
        [sys.executable, "-m", "streamlit", "run", str(MAIN), "--server.port", str(port), *flags],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/_stcore/health", server)
        yield f"http://127.0.0.1:{port}"
    finally:
        server.kill()
        server.wait()


@pytest.fixture
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield opened
        opened.close()


def test_a_reviewer_approves_from_the_queue(made, dashboard, browser):
    page = browser.new_page()
    page.set_default_timeout(60_000)
    expect.set_options(timeout=60_000)
    outside: list[str] = []
    page.on(
        "request", lambda sent: None if sent.url.startswith((dashboard, "data:", "blob:")) else outside.append(sent.url)
    )
    page.goto(dashboard)
    expect(page.get_by_text("5 variants")).to_be_visible()
    for _ in range(12):  # a click while the page is still being drawn is lost, and a reader clicks again
        with contextlib.suppress(Error):
            page.locator(f'a[href*="{made.complete}&variant=int8"]').first.click(timeout=5_000)
            page.wait_for_url(f"**/verdict?run={made.complete}&variant=int8", timeout=5_000)
            break
    expect(page.get_by_text("all 5 critical rules proven").first).to_be_visible()
    page.get_by_label("Name", exact=True).fill("Ada Lovelace")
    page.get_by_label("Reason", exact=True).fill("Every flip is an improvement.")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Every flip is an improvement.").first).to_be_visible()
    # The reason is on the page as soon as it is typed; the decision is made once the store has it.
    deadline = time.monotonic() + 60
    with open_store(made.url) as store:
        while not queries.list_decisions(store) and time.monotonic() < deadline:
            page.wait_for_timeout(100)
        [decision] = queries.list_decisions(store)
        assert (decision.variant, decision.action, decision.name) == ("int8", "approve", "Ada Lovelace")
        decisions.check_chain(store)

    page.goto(f"{dashboard}/verdict?run={made.hostile}&variant=int2-g32")
    expect(page.locator(".qg-text").nth(1)).to_contain_text(re.compile(r"<script>.*<img src=x.*\\u202egnp"))
    assert page.evaluate("window.owned") is None
    assert outside == []


def _wait_for(url: str, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and server.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            server_exited = server.poll() is not None
            assert not server_exited, "the server ended while starting"
    raise TimeoutError(f"{url} did not answer")
