"""Who signed in, at a login provider or at a trusted proxy; and the page of those who did not."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass

import streamlit as st
from qualgate_app import LOGIN, PROXY, data
from qualgate_app.keys import show_keys
from qualgate_app.proxy import FRESH_HOURS, OWN
from qualgate_app.text import label

from qualgate.store.people import LABELS, Role

FRESH = FRESH_HOURS * 3600  # s after signing in within which a person decides; Streamlit's cookie lives 30 days


@dataclass(frozen=True, slots=True)
class Person:
    """Who looks at a page."""

    identity: str  # as `people` names them; "": nobody signs in here
    name: str  # what they are called; as typed where nobody signs in
    role: Role | None
    fresh: bool = True  # signed in recently enough to decide
    closed: bool = False  # nobody signs in here, and the store asks for it

    @property
    def who(self) -> str:
        """Who they are to claims and assignments; "" until they type a name."""
        return self.identity or self.name.strip()

    @property
    def may_decide(self) -> bool:
        """Whether the form for decisions is open. The store checks again."""
        return not self.closed if not self.identity else self.fresh and self.role in ("approver", "admin")

    @property
    def may_label(self) -> bool:
        """Whether cases may be labelled."""
        return not self.closed if not self.identity else self.role in LABELS


NOBODY = Person("", "", None, fresh=False, closed=True)  # where people sign in


def signs_in() -> bool:
    """Whether people sign in, at a login provider or at a proxy."""
    return bool(os.environ.get(LOGIN) or os.environ.get(PROXY))


def person() -> Person:
    """Return who looks at the page; their role is read from the store each time."""
    if os.environ.get(PROXY):
        sent = st.context.headers.get(OWN)  # set by the server itself, see `Proxy.headers`
        return _known(**json.loads(sent)) if sent else NOBODY
    if not signs_in():
        return Person("", st.session_state.get("reviewer", ""), None, closed=data.has_people())
    claims = st.user.to_dict()
    if not claims.get("is_logged_in"):
        return NOBODY
    identity = _identity(claims)
    return _known(identity, str(claims.get("name") or identity), claims.get("auth_time") or claims.get("iat"))


def _known(identity: str, name: str, since: object) -> Person:
    """Return a person who signed in. since: when, in seconds since 1970."""
    fresh = isinstance(since, int | float) and 0 <= time.time() - since + 60 < FRESH
    return Person(identity, name, data.role_of(identity), fresh)


def _identity(claims: Mapping[str, object]) -> str:
    """Return a verified address, else SUBJECT@ISSUER: an address that nobody verified may be anybody's."""
    if claims.get("email") and claims.get("email_verified") is True:
        return str(claims["email"]).lower()
    return f"{claims.get('sub')}@{claims.get('iss')}"


def admitted() -> bool:
    """Show who is signed in, or a field for the name if nobody signs in; or the way to sign in, or to a role, in place
    of the page. Whether the page is shown."""
    proxied, mine = bool(os.environ.get(PROXY)), person()
    if not signs_in():
        with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", key="person"):
            show_keys()
            st.text_input("Your name", key="reviewer", max_chars=200, width=220, placeholder="Your name",
                          label_visibility="collapsed")  # fmt: skip
        return True
    if not mine.identity:
        st.header("Sign in")
        st.caption("This dashboard is for people with a role.")
        if proxied:
            st.text("Open it through its proxy, where you sign in.")
        else:
            st.button("Sign in", type="primary", on_click=st.login)
        return False
    with st.container(horizontal=True, horizontal_alignment="right", vertical_alignment="center", key="person"):
        show_keys()
        st.caption(f"{label(mine.name)} · {mine.role or 'no role'}")
        if not proxied:
            st.button("Sign out", type="tertiary", on_click=st.logout)
    if mine.role is None:
        st.header("No role")
        st.text(f"{mine.identity} has no role in this store. An admin can give one:")
        st.code(f"qualgate people grant {mine.identity} viewer", language=None)
        return False
    return True
