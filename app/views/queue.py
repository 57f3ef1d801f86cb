"""Variants that wait for a person."""

from __future__ import annotations

import streamlit as st
from qualgate_app import data
from qualgate_app.text import chip, escape, when

from qualgate.formatting import counted

PAGE = 25

lines, page, waiting = data.queue(PAGE, st.session_state.get("queue_page", 0))
st.header("Waiting for a decision")
if not waiting and not data.list_runs(1, 0)[0]:
    st.info("This store holds no run yet. Make one, then come back:", icon=":material/info:")
    st.code("qualgate run gate.yaml", language=None)
elif not waiting:
    st.success("Nobody is waiting: every variant of every complete run has a decision.", icon=":material/done_all:")
else:
    st.caption(f"{counted(waiting, 'variant')}, newest run first")
for line in lines:
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.html(
            f'{chip(line.word)} &nbsp;<b class="qg-name">{escape(line.variant)}</b><div>{escape(line.reason)}</div>'
            f'<div class="qg-quiet">{when(line.created_at)} · {escape(line.run_id)}</div>',
            width="stretch",
        )
        st.page_link(
            "views/verdict.py",
            label="Review",
            icon=":material/arrow_forward:",
            query_params={"run": line.run_id, "variant": line.variant},
        )
if waiting > PAGE:
    last = (waiting - 1) // PAGE
    with st.container(horizontal=True, vertical_alignment="center"):
        if st.button("Newer", disabled=page == 0):
            st.session_state.queue_page = page - 1
            st.rerun()
        st.caption(f"page {page + 1} of {last + 1}")
        if st.button("Older", disabled=page >= last):
            st.session_state.queue_page = page + 1
            st.rerun()
