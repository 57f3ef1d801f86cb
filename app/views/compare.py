"""Any two runs of the store: what was judged otherwise, verdicts, rules, and regressions that are new, gone or same."""

from __future__ import annotations

import streamlit as st
from qualgate_app import data
from qualgate_app.address import keep, parameter
from qualgate_app.blocks import show_sections
from qualgate_app.faults import await_check
from qualgate_app.paging import link, no_run
from qualgate_app.text import label, when

from qualgate.report.run_changes import FlipChanges, of_variant, run_changes_sections
from qualgate.text.escaping import visible
from qualgate.text.numbers import counted

OFFERED, LISTED = 100, 50  # newest runs; cases
EVERY, KINDS = "every variant", ("new", "gone", "same")


def show() -> None:
    """Show the page for the two runs in the address; by default the newest run and the last one of its gate file."""
    st.header("Compare two runs")
    lines, _, total = data.list_runs(OFFERED, 0)
    if not total:
        no_run()
        return
    names = {line.run_id: f"{when(line.created_at)} · {line.run_id}" for line in lines}
    state = st.session_state
    state.setdefault("after", parameter("after") or data.latest_run())
    state.setdefault("before", parameter("before") or data.run_before(state.after) or state.after)
    options = list(dict.fromkeys([*names, state.before, state.after]))
    with st.container(horizontal=True, vertical_alignment="bottom"):
        before, after = (
            st.selectbox(key.title(), options, key=key, format_func=lambda run: visible(names.get(run, run)), width=380)
            for key in ("before", "after")
        )
        st.button("Swap", on_click=_swap, args=(before, after))
    keep(before=before, after=after)  # always, as a later run may become the default
    changes = data.changes(before, after)
    if changes is None:
        await_check(before, after)
        return
    variants = [flip.variant for flip in changes.flips]
    with st.container(horizontal=True):
        variant = st.selectbox(
            "Variant", [EVERY, *variants], key="arm", format_func=visible, bind="query-params", width=220
        )
        kind = st.selectbox("Regressions", KINDS, key="kind", bind="query-params", width=160)
    shown = changes if variant == EVERY else of_variant(changes, variant)
    show_sections(run_changes_sections(shown))
    st.subheader(f"Cases: {kind}", anchor="cases")
    for flip in shown.flips:
        _cases(flip, kind, before if kind == "gone" else after)


def _swap(before: str, after: str) -> None:
    st.session_state.before, st.session_state.after = after, before


def _cases(flip: FlipChanges, kind: str, run_id: str) -> None:
    """Link to a variant's regressions of a kind, in the run that has them."""
    cases: tuple[str, ...] = getattr(flip, kind)
    st.caption(f"{label(flip.variant)}: {counted(len(cases), 'case')}, in run {label(run_id)}")
    with st.container(horizontal=True):
        for case in cases[:LISTED]:
            link(label(case), run_id, flip.variant, case=case)
        if len(cases) > LISTED:
            st.caption(f"and {len(cases) - LISTED:,} more")


show()
