"""The label of a case in the table, and the form that labels the variant's answer."""

from __future__ import annotations

import streamlit as st

from qualgate.errors import QualgateError
from qualgate.records import UnitKey
from qualgate.store.labels import LONGEST_NAME, LONGEST_NOTE, NO_LABEL, WORDS, CaseLabels, Label
from qualgate.text.escaping import visible
from qualgate_app import data
from qualgate_app.person import person
from qualgate_app.text import escape


def label_cell(labels: CaseLabels) -> str:
    """Return a row's cell as HTML: the answer's own label, else another run's."""
    if labels.own is not None:
        return f"<b>{escape(labels.own.label)}</b>"
    return "–" if labels.other is None else f'<span class="quiet">{escape(labels.other.label)} in another run</span>'


def show_label_form(run_id: str, unit: UnitKey, own: Label | None) -> None:
    """Show a form whose buttons each set a label. own: the answer's label."""
    state, mine = st.session_state, person()
    if state.get("labelling") != (run_id, unit) or "label_name" not in state:  # another case: clear the form
        state.labelling, state.label_refused = (run_id, unit), ""
        state.label_name, state.label_note = state.get("reviewer", ""), own.note if own else ""
    with st.form("label case", enter_to_submit=False):
        name, note = st.columns([1, 2])
        if mine.identity:
            state.label_name = mine.name
        else:
            name.text_input("Your name", key="label_name", max_chars=LONGEST_NAME)
        note.text_input("Note", key="label_note", max_chars=LONGEST_NOTE)
        with st.container(horizontal=True):
            for word in WORDS:
                st.form_submit_button(
                    word.capitalize(), on_click=_save, args=(run_id, unit, word), disabled=not mine.may_label
                )
            if own is not None:
                st.form_submit_button("Remove label", type="tertiary", on_click=_save, args=(run_id, unit, NO_LABEL))
    if state.label_refused:
        st.error("Nothing was recorded.", icon=":material/error:")
        st.text(state.label_refused)


def _save(run_id: str, unit: UnitKey, word: str) -> None:
    """Record the label that was clicked; a refusal is kept for the page to show."""
    state = st.session_state
    try:
        data.set_label(run_id, unit, word, state.label_name, state.label_note, person().identity)
    except QualgateError as error:
        state.label_refused = visible(str(error))
    else:
        state.reviewer, state.label_refused = state.label_name, ""
