"""Show the choice of a four-arm run, and each arm's steps."""

from __future__ import annotations

import streamlit as st
from qualgate_app.text import chip, escape, table
from qualgate_app.verdict.rules import show_services

from qualgate.report.arms import STEPS, interaction_text, step_rows
from qualgate.store.queries import RunSummary


def show_four_arms(run: RunSummary) -> None:
    """Show, on the page of each arm of a four-arm run, which arm to serve and each arm's steps."""
    answer = next((stored.verdict.four_arm for stored in run.verdicts if stored.verdict.four_arm is not None), None)
    if answer is None:
        return
    st.subheader("Which arm to serve", anchor="arms")
    st.html(
        f'<div class="qg-reason"><b>{escape(answer.choice or "not known yet")}</b></div>'
        f'<div class="qg-quiet">{escape(answer.why)}</div>'
    )
    rows = []
    for arm, steps in step_rows(answer):
        arm_steps = map(steps.get, STEPS)
        cells = (f'{chip(s.status)}<div class="qg-quiet">{escape(s.reason)}</div>' if s else "–" for s in arm_steps)
        rows.append((escape(arm), *cells))
    if rows:
        st.html(table(["arm", *STEPS.values()], rows))
    interactions = [
        f'<div class="qg-quiet">interaction · {escape(text)}</div>'
        for text in map(interaction_text, answer.interactions)
    ]
    if interactions:
        st.html("".join(interactions))
    show_services(answer.services)
    st.html(f"<b>Try first: {escape(answer.first)}</b><div class='qg-quiet'>{escape(answer.first_why)}</div>")
