"""Every run by date, with the verdicts on its variants."""

from __future__ import annotations

import streamlit as st
from qualgate_app import data
from qualgate_app.paging import link, no_run, page_of, turn
from qualgate_app.text import chip, escape, when

from qualgate.formatting import counted
from qualgate.store.queries import RunLine

PAGE = 20
STATES = {
    "complete": "complete",
    "running": "under way, or interrupted: running it again resumes",
    "incomplete": "incomplete: running it again resumes",
}

lines, page, total = data.list_runs(PAGE, page_of("runs"))


def state(line: RunLine) -> str:
    """Return a run's status, and whether it is a trial."""
    return ("a trial, which decides nothing · " if line.trial else "") + STATES.get(line.status, "")


def progress(line: RunLine) -> str:
    """Return how many of a run's answers are done."""
    errors = f", {line.errors} could not be run" if line.errors else ""
    settled = f", {line.settled:,} not asked because a verdict was settled" if line.settled else ""
    pruned = f" · {line.pruned}" if line.pruned else ""
    return f"{line.done:,} of {counted(line.expected, 'answer')}{settled}{errors}{pruned}"


st.header("Runs")
if not total:
    no_run()
for line in lines:
    with st.container(border=True):
        st.html(
            f'<span style="font-weight:600">{when(line.created_at)}</span> '
            f'<span class="quiet">· {escape(line.run_id)} · {state(line)} · {progress(line)}</span>'
        )
        for variant in line.variants:
            with st.container(horizontal=True, vertical_alignment="center"):
                decided = (
                    f" · <b>{escape(variant.action)}</b> by {escape(variant.name or '')}" if variant.action else ""
                )
                st.html(
                    f'<div class="qg-long">{chip(variant.word)} &nbsp;<b>{escape(variant.variant)}</b> '
                    f'<span class="quiet">{escape(variant.reason)}{decided}</span></div>',
                    width="stretch",
                )
                link("Open", variant.run_id, variant.variant)
turn("runs", page, total, PAGE)
