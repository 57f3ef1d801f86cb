"""What people decided about a verdict, and the form in which one decides."""

from __future__ import annotations

import streamlit as st
from qualgate_app import data
from qualgate_app.text import chip, escape, overrules, when

from qualgate.errors import UsageError
from qualgate.escaping import visible
from qualgate.store.decisions import Action
from qualgate.store.queries import RunSummary, StoredVerdict

CAUTION = {
    "invalid": "An invalid run cannot be approved. Run it again.",
    "block": "The gate says block; approving would overrule it.",
    "undecided": "The gate could not decide; approving would overrule it.",
}


def show_decision(run: RunSummary, found: StoredVerdict) -> None:
    """Earlier decisions, and the form. What is decided is the verdict that the page showed before the click."""
    with st.container(border=True):
        if (trial := run.policy.trial) is not None:
            st.caption(f"A {trial.said}. Nothing is decided about it.")
            return
        for made in found.decisions:
            about_this = made.verdict_sha256 == found.sha256
            old = "" if about_this else " · about an earlier verdict"
            if about_this and overrules(made.action, found.verdict.word):
                old += " · <b>overrules the gate</b>"
            st.html(
                f'<div class="qg-long">{chip(made.action)} by <b>{escape(made.name)}</b></div>'
                f'<div class="qg-long">{escape(made.reason)}</div><div class="qg-quiet">{when(made.created_at)}{old} · '
                f"<code>{escape(made.hash[:12])}</code></div>"
            )
        st.markdown("**Decide again**" if found.decision else "**Your decision**")
        word = found.verdict.word
        if word in CAUTION:
            st.caption(CAUTION[word])
        # A click runs this page anew; what the person saw is what the run before it showed.
        this = f"{run.run_id} {found.verdict.variant}"
        verdict_seen, decision_seen = st.session_state.get(f"shown {this}", ("", None))
        newest = found.decisions[-1].hash if found.decisions else None
        st.session_state[f"shown {this}"] = (found.sha256, newest)
        if st.session_state.get("deciding") != this:  # another verdict, or this one is decided: another reason
            st.session_state.deciding, st.session_state.decide_reason = this, ""
        with st.form(f"decide {this}", border=False, enter_to_submit=False):
            name = st.text_input("Name", value=st.session_state.get("reviewer", ""), key="decide_name", max_chars=200)
            reason = st.text_area("Reason", key="decide_reason", height=80, max_chars=4000)
            approve, block = st.columns(2)
            approved = approve.form_submit_button("Approve", width="stretch", disabled=word == "invalid")
            blocked = block.form_submit_button("Block", width="stretch")
        if approved or blocked:
            action: Action = "approve" if approved else "block"
            try:
                data.decide(
                    run.run_id, found.verdict.variant, action, name or "", reason or "", verdict_seen, decision_seen
                )
            except UsageError as error:
                st.error("Nothing was recorded.", icon=":material/error:")
                st.text(visible(str(error)))
            else:
                st.session_state.reviewer, st.session_state.deciding = name, ""
                st.toast("Recorded.", icon=":material/check:")
                st.rerun()
