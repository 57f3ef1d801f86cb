"""Variants that wait for a person."""

from __future__ import annotations

import streamlit as st

from qualgate.text.numbers import counted
from qualgate_app import data
from qualgate_app.paging import link, no_run, page_of, turn
from qualgate_app.text import chip, escape, waits, when

PAGE = 25

lines, page, waiting = data.queue(PAGE, page_of("queue"))
st.header("Waiting for a decision")
if not waiting and not data.list_runs(1, 0)[0]:
    no_run()
elif not waiting:
    st.success("Nobody is waiting: every variant of every complete run has a decision.", icon=":material/done_all:")
else:
    st.caption(f"{counted(waiting, 'variant')}, the most severe verdict first, and of one kind the longest wait")
for line in lines:
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.html(
            f'{chip(line.word)} &nbsp;<b class="qg-name">{escape(line.variant)}</b>'
            f'<div class="qg-long">{escape(line.reason)}</div>'
            f'<div class="quiet">{escape(str(line.called))}</div>'
            f'<div class="quiet"><b>{waits(line.since or line.created_at)}</b>'
            f" · {when(line.created_at)} · {escape(line.run_id)}</div>",
            width="stretch",
        )
        link("Review", line.run_id, line.variant)
if passed := data.count_superseded():
    st.caption(f"{counted(passed, 'variant')} of older runs superseded by a newer one of the same gate file: see Runs.")
turn("queue", page, waiting, PAGE, ("Back", "More"))
