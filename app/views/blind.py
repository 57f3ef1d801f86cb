"""Compare two answers to a case without knowing which arm gave which; the results come when a reviewer is done.

Nothing that a browser gets names an arm, a case or a side: keys of widgets and the address hold the run alone.
"""

from __future__ import annotations

import streamlit as st
from qualgate_app import data
from qualgate_app.address import keep, parameter
from qualgate_app.blocks import show_sections
from qualgate_app.person import Person, person
from qualgate_app.text import label, plain_block

from qualgate.errors import QualgateError
from qualgate.records import UnitKey
from qualgate.store.preferences import Blind
from qualgate.text.escaping import visible
from qualgate.text.numbers import counted

CLIPPED = 20_000  # characters of a text that are shown at first
CHOICES = (("First is better", "1", "first"), ("Tie", "0", "tie"), ("Second is better", "2", "second"))


def show() -> None:
    """Show the next pair of the run in the address, by default the newest run's; or the results to who is done."""
    run_id, mine = parameter("run") or data.latest_run(), person()
    keep(run=run_id)
    st.header("Compare blind")
    if not mine.may_label:
        st.info("Comparing takes the role labeller, approver or admin.", icon=":material/lock:")
        return
    name = mine.name.strip()
    if not name:
        st.info("Give your name at the top of the page: choices are kept by it.", icon=":material/person:")
        return
    reviewer = mine.identity or name
    pairs = sorted(data.pairs_to_compare(run_id), key=lambda pair: pair.drawn(run_id, reviewer))
    given, closed = data.preferred_by(run_id, reviewer)
    if closed:
        show_sections([data.preferred(run_id)])
        st.caption("You have seen the results of this run, so you compare nothing in it any more.")
        return
    left = [pair for pair in pairs if pair.unit not in given]
    done = len(pairs) - len(left)
    if not pairs:
        st.info("There is nothing to compare: the run is not complete, or no two answers differ.")
        return
    st.progress(done / len(pairs), f"{done:,} of {len(pairs):,}")
    if st.session_state.get("compare_refused"):
        st.error("Nothing was recorded.", icon=":material/error:")
        st.text(st.session_state.compare_refused)
    last = [pair for pair in pairs if given and pair.unit == given[-1]]
    again = bool(st.session_state.get("compare_back") and last)
    if again or left:
        _compare(run_id, (last if again else left)[0], mine, name, position=done - again)
    else:
        st.success(f"You have compared {counted(done, 'pair')}: all there are.", icon=":material/check:")
    _leave(run_id, mine, name, back=bool(last) and not again)


def _compare(run_id: str, pair: Blind, mine: Person, name: str, *, position: int) -> None:
    """Show a pair on this reviewer's sides, and the buttons of a choice. position: its number in their order."""
    shown = data.shown_blind(run_id, pair, mine.identity or name)
    texts = (shown.question, shown.first, shown.second)
    everything = max(map(len, texts)) > CLIPPED and st.toggle("Show all", key=f"all of {position}")
    question, first, second = (text if everything else _clipped(text) for text in texts)
    st.html(f'<div class="quiet">question</div>{plain_block(question)}')
    for column, head, text in zip(st.columns(2), ("first answer", "second answer"), (first, second), strict=True):
        column.html(f'<div class="quiet">{head}</div>{plain_block(text)}')
    with st.container(horizontal=True, horizontal_alignment="center"):
        for text, shortcut, word in CHOICES:
            st.button(text, shortcut=shortcut, on_click=_prefer, args=(run_id, pair.unit, word, name, mine.identity))


def _clipped(text: str) -> str:
    return text if len(text) <= CLIPPED else f"{text[:CLIPPED]} […]"


def _prefer(run_id: str, unit: UnitKey, word: str, name: str, signed_in: str) -> None:
    """Record the choice; a refusal is kept for the page to show."""
    state = st.session_state
    try:
        data.prefer(run_id, unit, word, name, signed_in)
    except QualgateError as error:
        state.compare_refused = visible(str(error))
    else:
        state.compare_refused, state.compare_back = "", False


def _leave(run_id: str, mine: Person, name: str, *, back: bool) -> None:
    """Show the ways on: back to the pair before, and to the results, which end the comparing."""
    st.caption(f"{label(name)} compares. Your choices are stored as you make them: you can close the page and return.")
    with st.container(horizontal=True):
        st.button("Back", disabled=not back, on_click=lambda: st.session_state.update(compare_back=True))
        with st.popover("Results"):
            st.write("Whoever sees the results compares nothing in this run any more.")
            st.button("Stop and show the results", on_click=_close, args=(run_id, name, mine.identity))


def _close(run_id: str, name: str, signed_in: str) -> None:
    try:
        data.close_comparing(run_id, name, signed_in)
    except QualgateError as error:
        st.session_state.compare_refused = visible(str(error))


show()
