"""Who signed in, if the dashboard was started with a login provider; and the page of those who did not."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st

from qualgate.store.people import LABELS, Role
from qualgate_app import LOGIN, data
from qualgate_app.text import label

FRESH = 8 * 3600  # s after signing in within which a person decides; Streamlit's cookie lives 30 days


@dataclass(frozen=True, slots=True)
class Person:
    """Who looks at a page."""

    identity: str  # as `people` names them; "": nobody signs in here
    name: str  # what they are called
    role: Role | None
    fresh: bool = True  # signed in recently enough to decide
    closed: bool = False  # nobody signs in here, and the store asks for it

    @property
    def may_decide(self) -> bool:
        """Whether the form for decisions is open. The store checks again."""
        return not self.closed if not self.identity else self.fresh and self.role in ("approver", "admin")

    @property
    def may_label(self) -> bool:
        """Whether cases may be labelled."""
        return not self.closed if not self.identity else self.role in LABELS


def signs_in() -> bool:
    """Whether the dashboard was started with a login provider."""
    return bool(os.environ.get(LOGIN))


def person() -> Person:
    """Return who looks at the page; their role is read from the store each time."""
    if not signs_in():
        return Person("", "", None, closed=data.has_people())
    claims = st.user.to_dict()
    if not claims.get("is_logged_in"):
        return Person("", "", None, fresh=False)
    identity = _identity(claims)
    since = claims.get("auth_time") or claims.get("iat")
    fresh = isinstance(since, int | float) and 0 <= time.time() - since + 60 < FRESH
    return Person(identity, str(claims.get("name") or identity), data.role_of(identity), fresh)


def _identity(claims: Mapping[str, object]) -> str:
    """Return a verified address, else SUBJECT@ISSUER: an address that nobody verified may be anybody's."""
    if claims.get("email") and claims.get("email_verified") is True:
        return str(claims["email"]).lower()
    return f"{claims.get('sub')}@{claims.get('iss')}"


def admitted() -> bool:
    """Show who is signed in; or the way to sign in, or to a role, in place of the page. Whether the page is shown."""
    if not signs_in():
        return True
    if not st.user.is_logged_in:
        st.header("Sign in")
        st.caption("This dashboard is for people with a role.")
        st.button("Sign in", type="primary", on_click=st.login)
        return False
    mine = person()
    with st.container(horizontal=True, horizontal_alignment="right", key="person"):
        st.caption(f"{label(mine.name)} · {mine.role or 'no role'}")
        st.button("Sign out", type="tertiary", on_click=st.logout)
    if mine.role is None:
        st.header("No role")
        st.text(f"{mine.identity} has no role in this store. An admin can give one:")
        st.code(f"qualgate people grant {mine.identity} viewer", language=None)
        return False
    return True
