"""Nights: results of each gate file and model night by night, falls since the approved run, undelivered digests."""

from __future__ import annotations

import streamlit as st
from qualgate_app import charts, data
from qualgate_app.address import keep, parameter
from qualgate_app.paging import link_nights
from qualgate_app.text import chip, escape, table, when

from qualgate.formatting import counted
from qualgate.report.nights import ShownNights, ShownTrend, word
from qualgate.report.plots import NIGHTS_CAPTION
from qualgate.store.queries.night_lines import NightLine

MARKS = {0: "✓", 10: "✗", 11: "☐", 12: "?"}  # approve, block, review, undecided; "!" of whatever failed
FLAKY_SHOWN = 20


def strip(line: NightLine) -> str:
    """Render nights as signs with tooltips, the newest last."""
    signs = (f'<span title="{escape(word(code))}">{MARKS.get(code, "!")}</span>' for code in line.exits)
    return f'<span class="qg-quiet" style="letter-spacing:.2em">{"".join(signs)}</span>'


def show_line(line: NightLine) -> None:
    """Show a gate file's newest night and those before."""
    night = line.newest
    with st.container(border=True), st.container(horizontal=True, vertical_alignment="center"):
        note = f" · {escape(night.said)}" if night.said else ""
        again = ", its verdict repeated" if night.repeated else ""
        st.html(
            f'<div class="qg-long">{chip(word(night.exit))} &nbsp;<b>{escape(night.name)}</b> {strip(line)} '
            f'<span class="qg-quiet">{escape(night.nightly)} · {when(night.finished_at)}{again}{note}</span></div>',
            width="stretch",
        )
        if line.shown_run is not None:
            link_nights(line.shown_run)


def show_trend(trend: ShownTrend) -> None:
    """Show a metric's trend as text and as a picture."""
    state = "fallen" if trend.falls else "no fall"
    means = f"{100 * trend.first:.1f} → {100 * trend.last:.1f} %"
    st.html(f"<b>{escape(trend.arm)}</b> {escape(trend.metric)} · {means} · <b>{state}</b>")
    for line in trend.falls:
        st.html(f'<span class="qg-fell">{escape(line)}</span>')
    if trend.picture is not None:
        charts.show(trend.picture, f"{trend.arm} {trend.metric}, night by night")
    st.html(f'<span class="qg-quiet">{escape(trend.against)}</span>')


def show_flaky(nights: ShownNights) -> None:
    """Show cases whose answers changed though nothing else did."""
    if not nights.flaky:
        return
    st.subheader(f"{counted(len(nights.flaky), 'flaky case')}: answers changed though nothing else did")
    st.html("".join(f"<div>{escape(line)}</div>" for line, _ in nights.flaky[:FLAKY_SHOWN]))
    st.caption("They count in every verdict. Under `gate.quarantine` a person names those that should not:")
    st.code("\n".join(f"- {line}" for _, line in nights.flaky[:FLAKY_SHOWN]), language=None, wrap_lines=True)


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
    st.html(table(("nightly file", "to", "written", "attempts", "why not"), rows, numbers=(3,)))
keep(run=parameter("run"))
run = parameter("run") or next((line.shown_run for line in reversed(lines) if line.shown_run is not None), None)
if run is not None:
    st.subheader("The trend")
    st.html(f'<span class="qg-quiet">of the run {escape(run)}. {NIGHTS_CAPTION}.</span>')
    shown = data.trend(run)
    if not shown.trends:
        pruned = f"The run was {shown.pruned}: its scores are gone."
        st.html(pruned if shown.pruned else "No earlier complete run asked the same cases.")
    for metric in shown.trends:
        show_trend(metric)
    show_flaky(shown)
