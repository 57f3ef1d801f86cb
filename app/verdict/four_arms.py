"""Of a four-arm run: which arm to serve, and how far each came."""

from __future__ import annotations

import streamlit as st
from qualgate_app.text import chip, escape, table
from qualgate_app.verdict.rules import show_services

from qualgate.report.arms import STEPS, interaction_text, step_rows
from qualgate.store.queries import RunSummary


def show_four_arms(run: RunSummary) -> None:
    """Of a four-arm run, on the page of each of its arms: which one to serve and how far each came."""
    answer = next((one.verdict.four_arm for one in run.verdicts if one.verdict.four_arm is not None), None)
    if answer is None:
        return
    st.subheader("Which arm to serve", anchor="arms")
    st.html(
        f'<div class="qg-reason"><b>{escape(answer.choice or "not known yet")}</b></div>'
        f'<div class="qg-quiet">{escape(answer.why)}</div>'
    )
    rows = []
    for arm, steps in step_rows(answer):
        taken = (steps.get(name) for name in STEPS)
        cells = (f'{chip(one.status)}<div class="qg-quiet">{escape(one.reason)}</div>' if one else "–" for one in taken)
        rows.append((escape(arm), *cells))
    if rows:
        st.html(table(["arm", *STEPS.values()], rows))
    found = [
        f'<div class="qg-quiet">interaction · {escape(interaction_text(one))}</div>' for one in answer.interactions
    ]
    if found:
        st.html("".join(found))
    show_services(answer.services)
    st.html(f"<b>Try first: {escape(answer.first)}</b><div class='qg-quiet'>{escape(answer.first_why)}</div>")
