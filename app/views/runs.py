"""Every run by date, with the verdicts on its variants."""

from __future__ import annotations

import streamlit as st

from qualgate.report.run_list import run_state
from qualgate_app import data
from qualgate_app.paging import link, no_run, page_of, turn
from qualgate_app.text import chip, escape, when

PAGE = 20

lines, page, total = data.list_runs(PAGE, page_of("runs"))
st.header("Runs")
if not total:
    no_run()
for line in lines:
    with st.container(border=True):
        st.html(
            f'<span style="font-weight:600">{when(line.created_at)}</span> '
            f'<span class="quiet">· {escape(line.run_id)} · {escape(run_state(line))}</span>'
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
