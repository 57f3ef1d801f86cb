"""The dashboard's server: what browsers hold its pages to, and that it ends with the command that started it."""

from __future__ import annotations

import time
import urllib.error
import urllib.request

from tests.app.server import answers, started


def headers(url: str) -> dict[str, str]:
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            return {name.lower(): value for name, value in answer.headers.items()}
    except urllib.error.HTTPError as refused:
        return {name.lower(): value for name, value in refused.headers.items()}


def test_every_answer_forbids_frames_and_other_scripts_and_the_server_ends_with_a_killed_command(made):
    with started(made.url) as (url, command):
        for path in ("/", "/verdict", "/_stcore/health", "/static/none.js", "/none/../..%2f", "/media/none"):
            found = headers(url + path)
            assert found["x-frame-options"] == "DENY", path
            assert found["x-content-type-options"] == "nosniff"
            policy = dict(part.split(" ", 1) for part in found["content-security-policy"].split("; "))
            assert policy["frame-ancestors"] == policy["default-src"] == policy["base-uri"] == "'none'"
            assert policy["connect-src"] == "'self'"
            assert "unsafe" not in policy["script-src"]
            assert "http" not in found["content-security-policy"], "nothing from another address"
        command.kill()
        command.wait()
        deadline = time.monotonic() + 20
        while answers(url):
            assert time.monotonic() < deadline, "the server outlives the command that was killed"
