"""Any two runs of the store: what was judged otherwise, verdicts, rules, and regressions that are new, gone or same."""

from __future__ import annotations

import streamlit as st
from qualgate_app import data
from qualgate_app.address import parameter
from qualgate_app.blocks import show_sections
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
    later = parameter("after") or data.latest_run()
    earlier = parameter("before") or data.run_before(later) or later
    options = list(dict.fromkeys([*names, earlier, later]))

    def chosen(name: str, key: str, choices: list[str], value: str, width: int) -> str:
        st.session_state.setdefault(key, value)
        return st.selectbox(name, choices, key=key, format_func=lambda one: visible(names.get(one, one)),
                            bind="query-params", width=width)  # fmt: skip

    with st.container(horizontal=True, vertical_alignment="bottom"):
        before = chosen("Before", "before", options, earlier, 380)
        after = chosen("After", "after", options, later, 380)
        st.button("Swap", on_click=_swap, args=(before, after))
    changes = data.changes(before, after)
    if changes is None:
        st.info("The stored evidence is being checked. Wait a moment.", icon=":material/hourglass_top:")
        st.button("Try again", icon=":material/refresh:")
        return
    variants = [flip.variant for flip in changes.flips]
    with st.container(horizontal=True):
        variant = chosen("Variant", "of", [EVERY, *variants], EVERY, 220)
        kind = chosen("Regressions", "kind", list(KINDS), "new", 160)
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
