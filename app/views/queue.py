"""Variants that wait for a person."""

from __future__ import annotations

from typing import get_args

import streamlit as st
from qualgate_app import data, work
from qualgate_app.paging import link, no_run, page_of, turn
from qualgate_app.person import person
from qualgate_app.text import chip, escape, waits, when

from qualgate.store.claims import Shown
from qualgate.text.numbers import counted

PAGE = 25

st.header("Waiting for a decision")
mine = person()
show = st.selectbox("Show", get_args(Shown), key="of", bind="query-params", width=200,
                    help="Mine: claimed by you or assigned to you. Free: what nobody else holds.")  # fmt: skip
lines, page, waiting = data.queue(PAGE, page_of("queue"), show, mine.who)
now = work.now()
if show != "every verdict" and not waiting:
    st.info("No verdict is yours." if show == "mine" else "Others hold every verdict that waits.")
elif not waiting and not data.list_runs(1, 0)[0]:
    no_run()
elif not waiting:
    st.success("Nobody is waiting: every variant of every complete run has a decision.", icon=":material/done_all:")
else:
    st.caption(f"{counted(waiting, 'variant')}, the most severe verdict first, and of one kind the longest wait")
first = next((line for line in lines if line.claim is None or line.claim.holder == mine.who), None)
for line in lines:
    with st.container(border=True, horizontal=True, vertical_alignment="center"):
        st.html(
            f'{chip(line.word)} &nbsp;<b class="qg-name">{escape(line.variant)}</b>'
            f'<div class="qg-long">{escape(line.reason)}</div>'
            f'<div class="quiet">{escape(str(line.called))}</div>'
            f'<div class="quiet"><b>{waits(line.since or line.created_at)}</b>'
            f" · {when(line.created_at)} · {escape(line.run_id)}</div>"
            + (f'<div class="quiet"><b>{escape(line.claim.text(now))}</b></div>' if line.claim else ""),
            width="stretch",
        )
        with st.container(width="content", key="following" if line is first else f"{line.run_id} {line.variant}"):
            link("Review", line.run_id, line.variant)
if passed := data.count_superseded():
    st.caption(f"{counted(passed, 'variant')} of older runs superseded by a newer one of the same gate file: see Runs.")
turn("queue", page, waiting, PAGE, ("Back", "More"))
