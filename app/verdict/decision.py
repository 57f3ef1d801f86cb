"""Show people's decisions about a verdict, and the form for a new one."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import get_args

import streamlit as st

from qualgate.errors import QualgateError, UsageError
from qualgate.store.decisions import REASONED, Action, Decision, Said, Seen, overruled
from qualgate.store.people import DECIDES
from qualgate.store.plain import now, stamp
from qualgate.store.queries import StoredVerdict
from qualgate.text.escaping import visible
from qualgate.text.numbers import counted
from qualgate_app import data
from qualgate_app.data import ShownRun
from qualgate_app.person import Person, person
from qualgate_app.text import chip, escape, label, overrules, when

CAUTION = {
    "invalid": "An invalid run cannot be approved. Run it again.",
    "block": "The gate says block; approving would overrule it.",
    "undecided": "The gate could not decide; approving would overrule it.",
}


LASTS = {"until it is revoked": None, "for 30 days": 30, "for 90 days": 90, "for a year": 365}


@dataclass(frozen=True)
class Click:
    """A person's decision, and what was shown to them at the time."""

    said: Said
    seen: Seen


@st.fragment
def show_decision(shown: ShownRun, stored: StoredVerdict) -> None:
    """Show earlier decisions, and the form. A click closes the form, writes the decision, and redraws the page."""
    with st.container(border=True, key="decision"):
        if why := shown.run.policy.decides_nothing:
            st.caption(f"A {why}. It cannot be decided.")
            return
        _show_decided(stored)
        _show_form(shown, stored)
        if click := st.session_state.get("click"):  # the form is already closed on the person's screen
            _write(shown.run.run_id, stored.verdict.variant, click)
        if refused := st.session_state.get("refused"):
            st.error("Nothing was recorded.", icon=":material/error:")
            st.text(refused)


def _show_decided(stored: StoredVerdict) -> None:
    """Show the decisions on this variant, oldest first: about which verdict, and whether they overrule the gate."""
    for decision in stored.decisions:
        st.html(
            f'<div class="qg-long">{chip(decision.action)} by <b>{escape(decision.by)}</b></div>'
            f'<div class="qg-long">{escape(decision.reason)}</div>'
            f'<div class="quiet">{when(decision.created_at)}{_notes(decision, stored)} · '
            f"<code>{escape(decision.hash[:12])}</code></div>"
        )
    st.subheader("Decide again" if stored.decision else "Your decision", anchor="decide")


def _notes(decision: Decision, stored: StoredVerdict) -> str:
    """Return HTML about a decision: what it is about, what it overrules, and until when it holds."""
    if decision.verdict_sha256 != stored.sha256:
        return " · about an earlier verdict"
    against = overrules(decision.action, stored.verdict.word)
    notes = f" · <b>overrules the gate</b> {escape(decision.overrules)}".rstrip() if against else ""
    if decision.needed:
        notes += f" · <b>{counted(decision.needed, 'more approval')} needed</b>, by somebody else"
    if decision.expires_at is not None:
        ended = "holds until" if now() < decision.expires_at else "expired"
        notes += f" · {ended} {when(decision.expires_at)}"
    return notes


def _show_form(shown: ShownRun, stored: StoredVerdict) -> None:
    """Show the form for a name, a reason and a decision; disabled while evidence is checked and after a click."""
    word = stored.verdict.word
    if word in CAUTION:
        st.caption(CAUTION[word])
    form_id = f"{shown.run.run_id} {stored.verdict.variant}"
    state = st.session_state
    if state.get("deciding") != form_id:  # a new verdict, or this one was decided: clear the form
        state.deciding, state.decide_reason, state.click, state.refused = form_id, "", None, ""
        state.decide_overrules, state.decide_lasts = None, next(iter(LASTS))
    seen = Seen(stored.sha256, stored.decisions[-1].hash if stored.decisions else None, shown.seal)
    mine = person()
    closed = shown.checking or state.click is not None or not mine.may_decide
    with st.form(f"decide {form_id}", border=False, enter_to_submit=False):
        if mine.identity:
            state.decide_name = mine.name
            st.caption(_standing(mine))
        else:
            st.text_input("Name", value=state.get("reviewer", ""), key="decide_name", max_chars=200)
            st.caption(
                "Roles were given in this store, so nobody decides here without signing in."
                if mine.closed
                else "Nobody signs in here, so a decision is kept as *unauthenticated*."
            )
        if choices := overruled(stored.verdict):
            st.selectbox("What an approval overrules", choices, index=None, key="decide_overrules",
                         placeholder="Choose a rule", format_func=visible)  # fmt: skip
        hint = f"To overrule the gate: {REASONED} characters or more" if choices else None
        st.text_area("Reason", key="decide_reason", height=80, max_chars=4000, help=hint)
        st.selectbox("An approval holds", list(LASTS), key="decide_lasts")
        last = next(iter(stored.decisions[-1:]), None)
        stands = last is not None and last.verdict_sha256 == stored.sha256 and last.action != "revoke"
        actions = [action for action in get_args(Action) if action != "revoke" or stands]
        for column, action in zip(st.columns(len(actions)), actions, strict=True):
            column.form_submit_button(
                action.capitalize(),
                width="stretch",
                disabled=closed or (word == "invalid" and action == "approve"),
                on_click=_keep_click,
                args=(action, seen),
            )


def _standing(mine: Person) -> str:
    """Return who decides, or why they may not."""
    if mine.role not in DECIDES:
        return f"As {mine.role} you may not decide."
    return (
        f"You decide as {label(mine.identity)}." if mine.fresh else "You signed in hours ago. Sign in again to decide."
    )


def _keep_click(action: Action, seen: Seen) -> None:
    state = st.session_state
    said = Said(action=action, name=state.decide_name, reason=state.decide_reason, signed_in=person().identity)
    if action == "approve":
        days = LASTS[state.decide_lasts]
        ends = None if days is None else stamp(datetime.now(UTC) + timedelta(days=days))
        said = replace(said, overrules=state.get("decide_overrules") or "", expires_at=ends)
    state.click, state.refused = Click(said, seen), ""


def _write(run_id: str, variant: str, click: Click) -> None:
    """Record the decision that was clicked and redraw the page; a refusal is kept for it to show."""
    state = st.session_state
    try:
        mine = person()
        if mine.identity != click.said.signed_in or not mine.may_decide:  # a role or a login ended meanwhile
            raise UsageError("you are no longer signed in as somebody who may decide. Sign in again.")
        data.decide(run_id, variant, click.said, click.seen)
    except QualgateError as error:
        state.click, state.refused = None, visible(str(error))
    else:
        state.reviewer, state.deciding = click.said.name, ""
        st.toast("Recorded.", icon=":material/check:")
    st.rerun()
