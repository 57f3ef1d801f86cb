"""Nights: results of each gate file and model night by night, falls since the approved run, undelivered digests."""

from __future__ import annotations

import streamlit as st

from qualgate.report.html_blocks import table_html
from qualgate.report.nights import word
from qualgate.report.plots import NIGHTS_CAPTION
from qualgate.store.queries.night_lines import NightLine
from qualgate.text.numbers import counted
from qualgate_app import data
from qualgate_app.address import keep, parameter
from qualgate_app.blocks import show_sections
from qualgate_app.paging import link_nights
from qualgate_app.text import chip, escape, when

MARKS = {0: "✓", 10: "✗", 11: "☐", 12: "?"}  # approve, block, review, undecided; "!" of whatever failed


def strip(line: NightLine) -> str:
    """Render nights as signs with tooltips, the newest last."""
    signs = (f'<span title="{escape(word(code))}">{MARKS.get(code, "!")}</span>' for code in line.exits)
    return f'<span class="quiet" style="letter-spacing:.2em">{"".join(signs)}</span>'


def show_line(line: NightLine) -> None:
    """Show a gate file's newest night and those before."""
    night = line.newest
    with st.container(border=True), st.container(horizontal=True, vertical_alignment="center"):
        note = f" · {escape(night.said)}" if night.said else ""
        again = ", its verdict repeated" if night.repeated else ""
        st.html(
            f'<div class="qg-long">{chip(word(night.exit))} &nbsp;<b>{escape(night.name)}</b> {strip(line)} '
            f'<span class="quiet">{escape(night.nightly)} · {when(night.finished_at)}{again}{note}</span></div>',
            width="stretch",
        )
        if line.shown_run is not None:
            link_nights(line.shown_run)


st.header("Nights")
lines, waiting = data.nights()
if not lines:
    st.info("No nightly file keeps its nights in this store. One does with:", icon=":material/info:")
    st.code("qualgate nightly nightly.yaml", language=None)
for line in lines:
    show_line(line)
if waiting:
    st.subheader(f"{counted(len(waiting), 'digest')} not delivered")
    rows = ([escape(d.nightly), escape(d.target), when(d.created_at), str(d.attempts), escape(d.error)]
            for d in waiting)  # fmt: skip
    st.html(table_html(("nightly file", "to", "written", "attempts", "why not"), rows, numbers=(3,)))
keep(run=parameter("run"))
run = parameter("run") or next((line.shown_run for line in reversed(lines) if line.shown_run is not None), None)
if run is not None:
    st.subheader("The trend")
    st.html(f'<span class="quiet">of the run {escape(run)}. {NIGHTS_CAPTION}.</span>')
    shown = data.trend(run)
    if not shown.compared:
        pruned = f"The run was {shown.pruned}: its scores are gone."
        st.html(pruned if shown.pruned else "No earlier complete run asked the same cases.")
    show_sections(shown.sections)
