"""The dashboard's server: what browsers hold its pages to, and that it ends with the command that started it."""

from __future__ import annotations

import http.client
import time
import urllib.error
import urllib.request
from urllib.parse import urlsplit

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


UPGRADE = {
    "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}  # fmt: skip
PLACES = ("/", "/verdict", "/_stcore/health", "/_stcore/host-config", "/favicon.png", "/_stcore/stream")


def status(url: str, path: str, host: str, origin: str = "") -> int:
    """What a request by this name gets; 101: its websocket is opened."""
    parts = urlsplit(url)
    asked = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=20)
    more = {**(UPGRADE if path == "/_stcore/stream" else {}), **({"Origin": origin} if origin else {})}
    asked.request("GET", parts.path + path, headers={"Host": host.replace("PORT", str(parts.port)), **more})
    got = asked.getresponse()
    asked.close()
    return got.status


def opened(path: str) -> int:
    return 101 if path == "/_stcore/stream" else 200


def test_pages_files_and_the_websocket_are_refused_to_another_host_and_to_pages_of_another_site(made):
    with started(made.url, "--allow-host", "Reviews.example.org") as (url, _):
        for path in PLACES:
            for host in ("127.0.0.1:PORT", "localhost:PORT", "[::1]:PORT", "reviews.example.org", "localhost"):
                assert status(url, path, host) == opened(path), (path, host)
            for host in (
                "evil.example:PORT", "evil.example", "127.0.0.1.evil.example", "localhost.evil.example:PORT",
                "0.0.0.0:PORT", "10.1.2.3", "evil.example@127.0.0.1.evil.example", "evil.reviews.example.org", "[", "",
            ):  # fmt: skip
                assert status(url, path, host) in (400, 403), (path, host)
            own = "http://127.0.0.1:PORT".replace("PORT", str(urlsplit(url).port))
            assert status(url, path, "127.0.0.1:PORT", own) == opened(path)
            assert status(url, path, "127.0.0.1:PORT", "https://reviews.example.org") == opened(path), "a proxy's page"
            for origin in (
                "https://evil.example",
                "http://127.0.0.1:9",
                "null",
                "https://reviews.example.org.evil.example",
            ):
                assert status(url, path, "127.0.0.1:PORT", origin) == 403, (path, origin)
        parts = urlsplit(url)
        asked = http.client.HTTPConnection("127.0.0.1", parts.port, timeout=20)
        asked.request("GET", "/", headers={"Host": "evil.example"})
        refused = asked.getresponse()
        assert b"--allow-host NAME" in refused.read()
        assert refused.headers["X-Frame-Options"] == "DENY"
        asked.close()


def test_behind_a_path_of_a_proxy_every_address_is_below_it(made):
    with started(made.url, base_path="/tools/qualgate") as (url, _):
        for path in PLACES:
            assert status(url, path, "127.0.0.1:PORT") == opened(path), path
        assert status(url.replace("/tools/qualgate", ""), "/_stcore/health", "127.0.0.1:PORT") == 404
