"""People who sign in at a real OIDC provider on this machine, in a real browser."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from qualgate.store import queries
from qualgate.store.database import open_store
from qualgate.store.people import Grant, grant
from tests.app.server import free_port, started
from tests.app.test_browser import BUSY, browser, pytestmark  # noqa: F401
from tests.command_line import qualgate

ADA = "ada@example.org"
pytestmark = [*pytestmark, pytest.mark.filterwarnings("ignore::DeprecationWarning")]  # of the provider's libraries


@pytest.fixture
def provider():
    from oidc_provider_mock import User, run_server_in_thread

    people = (
        User(sub="ada", claims={"email": "Ada@Example.org", "email_verified": True, "name": "Ada Lovelace"}),
        User(sub="eve", claims={"email": ADA, "email_verified": False, "name": "Eve"}),
    )
    with run_server_in_thread(user_claims=people) as server:
        yield f"http://localhost:{server.server_port}"


@pytest.fixture
def dashboard(made, provider, tmp_path):
    port = free_port()
    settings = tmp_path / "login.toml"
    settings.write_text(
        f'[auth]\nredirect_uri = "http://127.0.0.1:{port}/oauth2callback"\ncookie_secret = "{"s" * 40}"\n'
        f'client_id = "qualgate"\nclient_secret = "secret"\n'
        f'server_metadata_url = "{provider}/.well-known/openid-configuration"\n'
    )
    with started(made.url, "--login", str(settings), port=port) as (url, _):
        yield url


def sign_in(page, url: str, sub: str) -> None:
    page.goto(url)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_role("button", name=sub, exact=True).click()
    page.wait_for_url(re.compile(re.escape(url)))


def give(made, person: str, role: str) -> None:
    with open_store(made.url) as store:
        grant(store, Grant(person=person, role=role, by="root"))


@pytest.mark.proof
def test_only_people_with_a_role_see_a_page_and_only_approvers_decide(made, dashboard, browser):  # noqa: F811
    page = browser.new_page()
    page.set_default_timeout(BUSY)
    expect.set_options(timeout=BUSY)
    verdict = f"{dashboard}/verdict?run={made.complete}&variant=int8"
    page.goto(verdict)
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()
    expect(page.get_by_text("critical rules proven")).to_have_count(0)

    sign_in(page, dashboard, "ada")
    expect(page.get_by_text(f"qualgate people grant {ADA} viewer")).to_be_visible()
    give(made, ADA, "viewer")
    page.goto(verdict)
    expect(page.get_by_text("all 5 critical rules proven").first).to_be_visible()
    expect(page.get_by_text("As viewer you may not decide.")).to_be_visible()
    expect(page.get_by_role("button", name="Approve")).to_be_disabled()

    give(made, ADA, "approver")
    page.goto(verdict)
    expect(page.get_by_text("You decide as ada@example.org")).to_be_visible()
    page.get_by_label("Reason", exact=True).fill("Every flip is an improvement.")
    give(made, ADA, "viewer")  # taken away while the page is open
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Nothing was recorded.")).to_be_visible()
    give(made, ADA, "approver")
    page.goto(verdict)
    page.get_by_label("Reason", exact=True).fill("Every flip is an improvement.")
    page.get_by_role("button", name="Approve").click()
    expect(page.get_by_text("Ada Lovelace (ada@example.org)").first).to_be_visible()
    with open_store(made.url) as store:
        [decision] = queries.list_decisions(store)
    assert (decision.signed_in, decision.name) == (ADA, "Ada Lovelace")

    page.get_by_role("button", name="Sign out").click()
    page.wait_for_url(lambda url: not url.startswith(dashboard))  # the provider asks whether to end its session, too
    page.goto(verdict)
    expect(page.get_by_role("button", name="Sign in")).to_be_visible()


@pytest.mark.proof
def test_an_address_that_nobody_verified_is_not_its_owner(made, dashboard, browser, provider):  # noqa: F811
    give(made, ADA, "admin")
    page = browser.new_page()
    page.set_default_timeout(BUSY)
    expect.set_options(timeout=BUSY)
    sign_in(page, dashboard, "eve")
    expect(page.get_by_text(re.compile(r"qualgate people grant eve@http://localhost:\d+ viewer"))).to_be_visible()


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "the section [auth] lacks redirect_uri"), ("auth = 1", "lacks redirect_uri"),
     ("[auth", "cannot be read as TOML"), ('[auth]\nredirect_uri = "x"', "lacks cookie_secret, client_id")],
)  # fmt: skip
def test_settings_that_are_none_are_named(made, tmp_path, text, why):
    (tmp_path / "login.toml").write_text(text)
    shown = qualgate("dashboard", "--store", made.url, "--login", str(tmp_path / "login.toml"))
    assert (shown.returncode, why in shown.stderr) == (64, True)
