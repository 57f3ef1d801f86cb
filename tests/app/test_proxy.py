"""People whom a trusted proxy names: by a header with its secret, or by a signed assertion; and nobody else."""

from __future__ import annotations

import http.client
import json
import socket
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace
from urllib.parse import urlsplit

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey
from playwright.sync_api import expect
from qualgate_app import PROXY
from qualgate_app.proxy import FRESH_HOURS, OWN, read_proxy

from qualgate.store import queries
from qualgate.store.database import open_store
from qualgate.store.people import Grant, grant
from tests.app.server import started
from tests.app.test_browser import BUSY, browser, pytestmark  # noqa: F401
from tests.app.test_serve import UPGRADE
from tests.command_line import qualgate

_, needs_chromium = pytestmark
pytestmark = pytest.mark.filterwarnings("ignore:JWS algorithm .none. is deprecated")
ADA, SECRET = "ada@example.org", "s" * 40
KEY, OTHER, SHARED = ECKey.generate_key("P-256"), ECKey.generate_key("P-256"), OctKey.import_key("k" * 40)
PLAIN = 'header = "X-Forwarded-Email"\nsecret_header = "X-Gate-Secret"\nsecret_file = "secret"\nsession_hours = 4'
SIGNED = 'header = "Cf-Access-Jwt-Assertion"\njwks = "certs.json"\nissuer = "https://team.example"\naudience = "gate"'
VOUCHED = {"X-Forwarded-Email": "Ada@Example.org", "X-Gate-Secret": SECRET}


@pytest.fixture
def settings(tmp_path):
    (tmp_path / "secret").write_text(SECRET + "\n")
    (tmp_path / "certs.json").write_text(json.dumps({"keys": [KEY.as_dict(private=False), SHARED.as_dict()]}))

    def written(text: str, addresses: str = '["127.0.0.1"]'):
        (tmp_path / "proxy.toml").write_text(f"[proxy]\naddresses = {addresses}\n{text}\n")
        return tmp_path / "proxy.toml"

    return written


def assertion(key=KEY, alg="ES256", **claims) -> str:
    now = int(time.time())
    body = {"iss": "https://team.example", "aud": ["gate"], "email": ADA, "iat": now, "exp": now + 600, **claims}
    return jwt.encode({"alg": alg}, body, key, algorithms=["ES256", "HS256", "none"])


def asked(url: str, path: str, *headers: tuple[str, str], peer: str = "127.0.0.1", origin: str = "") -> tuple[int, str]:
    """Status and text of the answer to a request with these headers, from this address."""
    sent = http.client.HTTPConnection("127.0.0.1", urlsplit(url).port, timeout=20, source_address=(peer, 0))
    sent.putrequest("GET", path)
    for name, value in (
        *headers,
        *(UPGRADE.items() if "stream" in path else ()),
        *([("Origin", origin)] * bool(origin)),
    ):
        sent.putheader(name, value)
    sent.endheaders()
    got = sent.getresponse()
    found = got.status, "" if got.status == 101 else got.read().decode()
    sent.close()
    return found


def test_a_header_that_names_a_person_is_refused_unless_the_proxy_set_it(made, settings):
    with started(made.url, "--proxy", str(settings(PLAIN))) as (url, _):
        named = ("X-Forwarded-Email", ADA)
        forged = {
            "without the proxy's secret": [named],
            "without the proxy's secret in": [named, ("X-Gate-Secret", "t" * 40)],
            "without the proxy's secret in X-Gate-Secret": [named, ("X-Gate-Secret", SECRET), ("X-Gate-Secret", "x")],
            "X-Forwarded-Email is there 2 times": [named, ("x-forwarded-email", "eve@a"), ("X-Gate-Secret", SECRET)],
            "x-qualgate-person is the dashboard's own header": [("X-Qualgate-Person", '{"identity":"ada"}')],
            "X-Forwarded-Email names nobody": [("X-Forwarded-Email", " "), ("X-Gate-Secret", SECRET)],
        }
        for why, headers in forged.items():
            status, text = asked(url, "/", *headers)
            assert (status, why in text) == (403, True), (why, text)
            assert asked(url, "/_stcore/stream", *headers)[0] == 403, why
        for path, opened in (("/", 200), ("/_stcore/stream", 101)):
            assert asked(url, path, *VOUCHED.items())[0] == opened
            assert asked(url, path, *VOUCHED.items(), origin="https://evil.example")[0] == 403, "a forged page"
            assert asked(url, path)[0] == opened, "nobody, who is shown how to sign in"
            for more in ([], [("X-Forwarded-For", "127.0.0.1")]):
                status, text = asked(url, path, *VOUCHED.items(), *more, peer="127.0.0.2")
                assert (status, path != "/" or "127.0.0.2 may not set it" in text) == (403, True)
            assert asked(url, path, *VOUCHED.items(), ("X-Forwarded-For", "127.0.0.2"))[0] == opened, (
                "the socket counts"
            )


def test_an_assertion_counts_only_if_the_keys_of_the_file_signed_it_for_this_dashboard(made, settings, tmp_path):
    with started(made.url, "--proxy", str(settings(SIGNED))) as (url, _):
        name, now = "Cf-Access-Jwt-Assertion", int(time.time())
        for verified in ({}, {"email_verified": True}, {"email_verified": "true"}):
            assert asked(url, "/", (name, assertion(**verified)))[0] == 200
        head, body, signature = assertion().split(".")
        for forged in (
            assertion(OTHER), assertion(SHARED, "HS256"), assertion(None, "none"), f"{head}.{body}.", "x", "a.b.c",
            f"{head}.{assertion(email='eve@example.org').split('.')[1]}.{signature}",
            assertion(iss="https://evil.example"), assertion(aud=["other"]), assertion(exp=now - 120),
            assertion(iat=now + 3600), assertion(email=""), assertion(email_verified=False),
            assertion(email_verified="false"), assertion(email_verified=0), assertion(email_verified=None),
            assertion(iat=None),
        ):  # fmt: skip
            for path in ("/", "/_stcore/stream"):
                status, text = asked(url, path, (name, forged))
                assert (status, path != "/" or name in text) == (403, True), forged
        (tmp_path / "certs.json").write_text(
            json.dumps({"keys": [OTHER.as_dict(private=False)]})
        )  # the proxy's new keys
        assert [asked(url, "/", (name, assertion(key)))[0] for key in (KEY, OTHER)] == [403, 200]


@contextmanager
def proxied(url: str, **headers: str):
    """A proxy on this machine that adds these headers to the first request of each connection."""
    port = urlsplit(url).port
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items()).encode()

    def passed(source: socket.socket, target: socket.socket) -> None:
        try:
            while block := source.recv(1 << 16):
                target.sendall(block)
        except OSError:
            pass
        target.close()

    def serve() -> None:
        while True:
            try:
                near = listening.accept()[0]
            except OSError:
                return
            far, head = socket.create_connection(("127.0.0.1", port)), b""
            while b"\r\n" not in head and (block := near.recv(1 << 16)):
                head += block
            first, _, rest = head.partition(b"\r\n")
            far.sendall(first + b"\r\n" + more + rest.replace(b":%d" % listening.getsockname()[1], b":%d" % port))
            for pair in ((near, far), (far, near)):
                threading.Thread(target=passed, args=pair, daemon=True).start()

    with socket.create_server(("127.0.0.1", 0)) as listening:
        threading.Thread(target=serve, daemon=True).start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        listening.shutdown(socket.SHUT_RDWR)


@pytest.mark.proof
@pytest.mark.browser
@needs_chromium
def test_who_comes_through_the_proxy_decides_by_their_role_and_only_after_a_fresh_sign_in(
    made,
    settings,
    browser,  # noqa: F811
):
    verdict = f"/verdict?run={made.complete}&variant=int8"
    expect.set_options(timeout=BUSY)
    with open_store(made.url) as store:
        grant(store, Grant(person=ADA, role="approver", by="root"))
    with started(made.url, "--proxy", str(settings(SIGNED + "\nsession_hours = 1"))) as (url, _):
        page = browser.new_page()
        page.set_default_timeout(BUSY)
        page.goto(url + verdict)
        expect(page.get_by_text("Open it through its proxy, where you sign in.")).to_be_visible()
        hours = int(time.time()) - 9 * 3600
        with proxied(url, Cf_Access_Jwt_Assertion=assertion(iat=hours)) as old:
            page.goto(old + verdict)
            expect(page.get_by_text("Sign in again to decide.")).to_be_visible()
            expect(page.get_by_role("button", name="Approve")).to_be_disabled()
        with proxied(url, Cf_Access_Jwt_Assertion=assertion(name="Ada Lovelace")) as fresh:
            page.goto(fresh + verdict)
            expect(page.get_by_text(f"You decide as {ADA}")).to_be_visible()
            page.get_by_label("Reason", exact=True).fill("Every flip is an improvement.")
            page.get_by_role("button", name="Approve").click()
            expect(page.get_by_text(f"Ada Lovelace ({ADA})").first).to_be_visible()
    with open_store(made.url) as store:
        [decision] = queries.list_decisions(store)
    assert (decision.signed_in, decision.name) == (ADA, "Ada Lovelace")


@pytest.mark.parametrize(
    ("text", "addresses", "why"),
    [
        ('header = "X-Forwarded-Email"', '["127.0.0.1"]', "must prove the header"),
        (PLAIN + '\njwks = "certs.json"', '["127.0.0.1"]', "must prove the header"),
        (PLAIN.replace("session_hours = 4", ""), '["127.0.0.1"]', "lacks session_hours"),
        (PLAIN.replace("= 4", "= 8"), '["127.0.0.1"]', "must be below 8"),
        (PLAIN.replace("X-Gate-Secret", "x-forwarded-email"), '["127.0.0.1"]', "names of two headers"),
        (PLAIN.replace('"secret"', '"none"'), '["127.0.0.1"]', "the secret cannot be read"),
        (PLAIN.replace('"secret"', '"proxy.toml"') + "\n#" + "x" * 1000, '["127.0.0.1"]', "32 to 1,000 characters"),
        (PLAIN, '["0.0.0.0/0"]', "addresses is a list of the proxy's own addresses"),
        (PLAIN, '"127.0.0.1"', "addresses is a list"),
        (SIGNED + "\nleeway = 3", '["127.0.0.1"]', "has no leeway"),
        (SIGNED.replace("certs.json", "secret"), '["127.0.0.1"]', "no set of public keys"),
    ],
)  # fmt: skip
def test_settings_that_trust_too_much_are_named(made, settings, text, addresses, why):
    shown = qualgate("dashboard", "--store", made.url, "--proxy", str(settings(text, addresses)))
    assert (shown.returncode, why in shown.stderr) == (64, True), shown.stderr


@pytest.mark.parametrize(
    ("text", "claims", "fresh"),
    [
        (SIGNED, {}, False),
        (SIGNED, {"auth_time": True}, False),
        (SIGNED, {"auth_time": int(time.time()) - 60}, True),
        (SIGNED + "\nsession_hours = 2", {}, True),
    ],
)
def test_without_a_time_of_signing_in_nobody_is_fresh(settings, text, claims, fresh):
    sent = [(b"cf-access-jwt-assertion", assertion(**claims).encode())]
    [(_, told)] = read_proxy(settings(text)).headers(sent, "127.0.0.1")
    since = json.loads(told)["since"]
    assert (time.time() - since < FRESH_HOURS * 3600) is fresh


def test_two_ways_to_sign_in_are_refused(made, settings):
    both = qualgate("dashboard", "--store", made.url, "--login", "x.toml", "--proxy", str(settings(PLAIN)))
    assert (both.returncode, "give one" in both.stderr) == (64, True)


def test_without_the_file_no_header_makes_a_person(made, open_page, monkeypatch):
    sent = [(OWN, json.dumps({"identity": ADA, "name": "Ada", "since": time.time()})), *VOUCHED.items()]
    monkeypatch.setattr("streamlit.runtime.context._get_client_context", lambda: SimpleNamespace(headers=sent))
    page = open_page("verdict", run=made.complete, variant="int8")
    assert any("*unauthenticated*" in caption.value for caption in page.caption)
    monkeypatch.setenv(PROXY, "proxy.toml")
    page = open_page("verdict", run=made.complete, variant="int8")
    assert any(f"qualgate people grant {ADA} viewer" in code.value for code in page.code)
