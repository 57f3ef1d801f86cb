"""One variant: may it ship, why, what changed, how sure, and the form that records what a person decides."""

from __future__ import annotations

import streamlit as st
from qualgate_app import data
from qualgate_app.address import asked, keep
from qualgate_app.paging import link_loads
from qualgate_app.text import chip, escape, label, when
from qualgate_app.verdict.cases import cases_query, show_cases, show_flips
from qualgate_app.verdict.decision import show_decision
from qualgate_app.verdict.four_arms import show_four_arms
from qualgate_app.verdict.rules import show_rules, show_sizes
from qualgate_app.verdict.setting import show_setting
from qualgate_app.verdict.speculation import show_speculation
from qualgate_app.verdict.weights_and_cache import show_weights_and_cache

from qualgate.errors import QualgateError, UsageError
from qualgate.formatting import counted
from qualgate.records import Comparison, Verdict
from qualgate.store.queries import RunSummary, StoredVerdict

MEANING = {
    "approve": "Every critical rule is proven: the loss is smaller than what the policy allows.",
    "block": "A loss beyond what the policy allows is proven.",
    "review": "The critical rules are proven; the policy asks for a person.",
    "undecided": "The evidence can neither prove nor exclude a loss beyond what the policy allows. Not a pass.",
    "invalid": "The run is incomplete, was pruned, or its evidence is damaged. It says nothing about the variant.",
}


def show() -> None:
    """The page, for the run and variant that its address names, else for the newest run's first."""
    keep(run=asked("run"), variant=asked("variant"))
    shown = data.run_summary(asked("run") or data.latest_run())
    run = shown.run
    names = [arm.name for arm in run.arms[1:] if "@" not in arm.name]
    variant = asked("variant") or names[0]
    if variant not in names:
        raise UsageError(f"run {run.run_id} has no variant {variant!r}. It has: {', '.join(names)}.")
    _switch(run, names, variant)
    found = run.verdict(variant)
    if found is None:
        st.html(f'<div class="qg-title">{escape(variant)} {chip(None)}</div>')
        _progress(run)
        return
    _header(run, found)
    if shown.checking:
        _await_check(run.run_id)
    evidence, decision = st.columns([7, 3], gap="large")
    with evidence:
        _evidence(run, found)
    with decision:
        show_decision(shown, found)


def _evidence(run: RunSummary, found: StoredVerdict) -> None:
    variant = found.verdict.variant
    _why(run, found.verdict)
    show_sizes(run, found)
    if found.verdict.word != "invalid":  # its evidence is nothing to draw
        counts = data.flip_counts(run.run_id, variant)
        show_cases(run, variant, counts)
        show_flips(counts)
    show_four_arms(run)
    show_rules(found)
    show_weights_and_cache(found.verdict)
    show_speculation(found.verdict)
    show_setting(run, found)


@st.fragment(run_every=1)
def _await_check(run_id: str) -> None:
    try:
        checking = data.run_summary(run_id).checking
    except QualgateError:
        checking = False  # the whole page says why
    if not checking:
        st.rerun()
    st.caption("The stored evidence is being checked. You can decide as soon as it is.")


def _switch(run: RunSummary, names: list[str], variant: str) -> None:
    """The run's other variants, and what its gate file's servers bore, one click away."""
    with st.container(horizontal=True):
        for name in names:
            st.page_link(
                "views/verdict.py",
                label=label(name),
                icon=":material/radio_button_checked:" if name == variant else ":material/radio_button_unchecked:",
                query_params={"run": run.run_id, "variant": name},
            )
        if run.gate_name and (kept := data.count_loads(run.gate_name)):
            link_loads(counted(kept, "load"), gate=run.gate_name)


def _progress(run: RunSummary) -> None:
    done, expected = sum(arm.done for arm in run.arms), sum(arm.expected for arm in run.arms)
    st.info(
        f"There is no verdict yet: {done:,} of {counted(expected, 'answer')} are in. If the run was interrupted, "
        "running the same command again resumes it.",
        icon=":material/hourglass_top:",
    )


def _header(run: RunSummary, found: StoredVerdict) -> None:
    sets = ", ".join(f"{item.name} {item.version} ({item.size})" for item in run.evalsets)
    st.html(
        f'<div class="qg-title">{escape(found.verdict.variant)} {chip(found.verdict.word)}</div>'
        f'<div class="qg-quiet">{when(run.created_at)} · run {escape(run.run_id)} · {escape(sets)}</div>'
        '<a class="qg-phone" href="#decide">To your decision</a>'
    )


def _why(run: RunSummary, verdict: Verdict) -> None:
    sets = {item.name for item in run.evalsets}
    for place, reason in enumerate(verdict.reasons or ("no reason was recorded",)):
        measured = next((one for one in verdict.comparisons if _is_about(reason, one)), None)
        with st.container(horizontal=True, wrap=False, vertical_alignment="center"):
            st.html(f'<div class="{"qg-long" if place else "qg-reason"}">{escape(reason)}</div>', width="stretch")
            if measured is not None:
                query = {"run": run.run_id, "variant": verdict.variant, **cases_query(measured, sets)}
                st.page_link("views/verdict.py", label="Cases", icon=":material/table_rows:", query_params=query)
        if not place:
            st.caption(MEANING.get(verdict.word, ""))


def _is_about(reason: str, one: Comparison) -> bool:
    """Whether the table of cases has something to show of it: cases that flipped, or drift."""
    shown = one.lost is not None or one.metric.startswith("drift.")
    return shown and reason.startswith(f"{one.metric} [{one.slice}]")


show()
