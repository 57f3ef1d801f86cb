"""Show who reviews a verdict, and the buttons that claim, assign or release it."""

from __future__ import annotations

import streamlit as st
from qualgate_app import work
from qualgate_app.keys import CLAIM
from qualgate_app.person import person
from qualgate_app.text import label

from qualgate.errors import QualgateError
from qualgate.store.people import DECIDES
from qualgate.text.escaping import visible


def show_claim(run_id: str, variant: str) -> None:
    """Show the claim on a verdict, or that nobody holds it, with what this person may do about it."""
    state, mine = st.session_state, person()
    held = work.keep_claim(run_id, variant, mine)
    with st.container(horizontal=True, vertical_alignment="center", key="claim"):
        if held is None:
            st.caption("Nobody reviews this verdict.", width="content")
        else:
            st.caption(label(held.text(work.now())), width="content")
        own = held is not None and mine.who == held.holder
        word, holder = ("Release", "") if own else ("Claim", mine.who)
        if own or held is None:  # of another's verdict, only an assignment makes one's own
            st.button(word, shortcut=CLAIM, disabled=not mine.may_label, on_click=_claim,
                      args=(run_id, variant, holder, False))  # fmt: skip
        manages = not mine.identity or mine.role in DECIDES
        with st.popover("Assign", disabled=not mine.may_label), st.form("assign", border=False, clear_on_submit=True):
            to = st.text_input("To", value=mine.who, max_chars=200, key="assign_to", disabled=not manages)
            st.caption("An assignment does not lapse. A claim does, 30 minutes after its holder was last here.")
            if st.form_submit_button("Assign"):
                _claim(run_id, variant, to or "", True)
                st.rerun()
    if refused := state.pop("claim_refused", ""):
        st.error("Nothing was recorded.", icon=":material/error:")
        st.text(refused)


def _claim(run_id: str, variant: str, holder: str, assigned: bool) -> None:
    """Write a claim; a refusal is kept for the page to show."""
    try:
        work.claim(run_id, variant, holder, person(), assigned)
    except QualgateError as error:
        st.session_state.claim_refused = visible(str(error))
