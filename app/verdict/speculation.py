"""Show the drafts' acceptance for an arm with speculation in our own engine, and how to serve it."""

from __future__ import annotations

import streamlit as st
from qualgate_app import charts
from qualgate_app.text import escape, label, table

from qualgate.escaping import visible
from qualgate.records import DraftLevel, Speculated, Verdict
from qualgate.report import plots, speculation


def show_speculation(verdict: Verdict) -> None:
    """Show what a report does: numbers, levels, positions and tasks, then flags to copy. Skips invalid evidence."""
    speculated = verdict.speculated
    if speculated is None or verdict.word == "invalid":
        return
    st.subheader("Speculation", anchor="speculation")
    st.html(f'<div class="qg-reason">{escape(speculation.headline(speculated))}</div>')
    for line in speculated.alerts:
        st.warning(label(line), icon=":material/warning:")
    st.html(table(["", ""], [(escape(term), escape(value)) for term, value in speculation.terms(speculated)]))
    rows = [[escape(cell) for cell in row] for row in speculation.level_rows(speculated)]
    st.html(table(speculation.LEVEL_HEADS, rows, numbers=range(2, 10)))
    for level in speculated.levels:
        _level(level, named=len(speculated.levels) > 1)
    _advice(speculated)


def _level(level: DraftLevel, *, named: bool) -> None:
    """Show one level of drafts: acceptance by place in the draft, as a picture and a table, and by task. named: with
    its name."""
    if picture := plots.acceptance(level.positions):
        level_name = f"Level {level.level}, {label(level.proposer)}. " if named else ""
        st.caption(f"{level_name}{plots.ACCEPTANCE_CAPTION}.")
        charts.show(picture, f"level {level.level}: accepted by the token's place in the draft")
    places = [[escape(cell) for cell in row] for row in speculation.position_rows(level)]
    tasks = [[escape(cell) for cell in row] for row in speculation.task_rows(level)]
    left, right = st.columns(2)
    with left:
        st.html(table(speculation.POSITION_HEADS, places, numbers=(1, 2)))
    with right:
        st.html(table(speculation.TASK_HEADS, tasks, numbers=(1, 2)))


def _advice(speculated: Speculated) -> None:
    """Show how to serve the arm: a sentence, then commands and flags to copy."""
    advice = speculation.advice(speculated)
    st.html(f"<b>How to serve it</b><div>{escape(advice.sentence)}</div>")
    pasted = [("the draft's folder", advice.made_by)] if advice.made_by else []
    for what, flags in [*pasted, *((speculation.peer_text(peer), peer.flags) for peer in advice.peers)]:
        st.html(f'<div class="qg-quiet">{escape(what)}</div>')
        if flags:
            st.code(visible(flags), language=None, wrap_lines=True)
