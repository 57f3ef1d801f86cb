"""One variant: its verdict and reasons, what changed, how surely, and the form for a person's decision."""

from __future__ import annotations

import streamlit as st
from qualgate_app import data
from qualgate_app.address import keep, parameter
from qualgate_app.blocks import show_sections
from qualgate_app.faults import await_check, explained
from qualgate_app.paging import link, link_compare, link_loads
from qualgate_app.person import person
from qualgate_app.text import chip, escape, label, when
from qualgate_app.verdict.cases import cases_query, show_cases
from qualgate_app.verdict.claim import show_claim
from qualgate_app.verdict.decision import show_decision
from qualgate_app.verdict.setting import show_setting
from qualgate_app.verdict.sizes import show_sizes
from streamlit.delta_generator import DeltaGenerator

from qualgate.errors import UsageError
from qualgate.records import Comparison, Verdict
from qualgate.report.four_arms import choice_section
from qualgate.report.sections import variant_sections
from qualgate.report.since_last import since_last_text
from qualgate.store.queries import RunSummary, StoredVerdict
from qualgate.text.numbers import counted

MEANING = {
    "approve": "Every critical rule is proven: the loss is smaller than what the policy allows.",
    "block": "A loss beyond what the policy allows is proven.",
    "review": "The critical rules are proven; the policy asks for a person.",
    "undecided": "The evidence can neither prove nor exclude a loss beyond what the policy allows. Not a pass.",
    "invalid": "The run is incomplete, was pruned, or its evidence is damaged. It says nothing about the variant.",
}


def show() -> None:
    """Show the page for the run and variant in the address, by default the newest run's first variant."""
    keep(run=parameter("run"), variant=parameter("variant"))
    shown = data.run_summary(parameter("run") or data.latest_run())
    run = shown.run
    beside = [name for name in run.policy.references if run.verdict(name) is None]  # variants are held against these
    names = [arm.name for arm in run.arms[1:] if "@" not in arm.name and arm.name not in beside]
    variant = parameter("variant") or names[0]
    if variant not in names:
        raise UsageError(f"run {run.run_id} has no variant {variant!r}. It has: {', '.join(names)}.")
    _switch(run, names, variant)
    stored = run.verdict(variant)
    if stored is None:
        st.html(f'<div class="qg-title">{escape(variant)} {chip(None)}</div>')
        _progress(run)
        return
    _header(run, stored)
    _check_state(shown)
    evidence, decision = st.columns([7, 3], gap="large")
    with decision:
        show_claim(run.run_id, variant)
        unopened = st.empty()
        show_decision(shown, stored)
        if following := data.next_in_queue(run.run_id, variant, person().who):
            with st.container(key="following"):
                link(f"Next in queue: {label(following.variant)}", following.run_id, following.variant)
    with evidence:
        _evidence(run, stored, unopened)


def _evidence(run: RunSummary, stored: StoredVerdict, unopened: DeltaGenerator) -> None:
    """Show everything that speaks for or against the variant, the reasons first. unopened: see `show_cases`."""
    _why(run, stored.verdict)
    if not data.is_read(run, stored.verdict):
        _await_answers(run, stored.verdict)
        return
    report = data.report(run, stored.verdict)
    show_sizes(run, stored)
    if stored.verdict.word != "invalid":  # damaged evidence is not drawn
        show_cases(run, stored.verdict.variant, report.flip_counts[stored.verdict.variant], unopened)
        _trend(run.run_id, stored.verdict.variant)
    if report.four_arm is not None:
        show_sections([choice_section(report.four_arm)])
    show_sections(variant_sections(report, stored))
    st.caption("Differences of rates are in points. Each bound is one-sided at the policy's alpha.")
    show_setting(report, stored)


@st.fragment
def _trend(run_id: str, variant: str) -> None:
    """Show the variant's trend over the runs of its gate file, on request: it reads the scores of every night."""
    with explained():
        if data.run_before(run_id) is None or not st.toggle("Trend of earlier runs", key="trend", bind="query-params"):
            return
        shown = data.trend(run_id, variant)
        if not shown.sections:
            st.caption("No earlier complete run asked the same cases.")
        show_sections(shown.sections)


def _check_state(shown: data.ShownRun) -> None:
    """Say when the stored evidence was checked, and whether that still holds."""
    if shown.checking:
        await_check(shown.run.run_id)
    elif shown.checked:
        since = "" if shown.holds else ". Somebody wrote to the store since, and it is being checked again"
        st.html(f'<div class="quiet">The stored evidence was checked at {when(shown.checked)}{since}.</div>')


@st.fragment(run_every=1)
def _await_answers(run: RunSummary, verdict: Verdict) -> None:
    """Redraw the whole page once the answers of a large run were read."""
    if data.is_read(run, verdict):
        st.rerun()
    number = sum(arm.expected for arm in run.arms)
    st.caption(f"Changed cases and drift are being read from the run's {counted(number, 'answer')}.")


def _switch(run: RunSummary, names: list[str], variant: str) -> None:
    """Link to the run's other variants, to comparing its answers blind, and to the loads of its gate file."""
    with st.container(horizontal=True):
        for name in names:
            st.page_link(
                "views/verdict.py",
                label=label(name),
                icon=":material/radio_button_checked:" if name == variant else ":material/radio_button_unchecked:",
                query_params={"run": run.run_id, "variant": name},
            )
        if run.finished_at:
            query = {"run": run.run_id}
            st.page_link("views/blind.py", label="Compare blind", icon=":material/balance:", query_params=query)
        if run.gate_name and (load_count := data.count_loads(run.gate_name)):
            link_loads(counted(load_count, "load"), gate=run.gate_name)


def _progress(run: RunSummary) -> None:
    """Show how many answers an unfinished run has, and how to go on."""
    done, expected = sum(arm.done for arm in run.arms), sum(arm.expected for arm in run.arms)
    st.info(
        f"There is no verdict yet: {done:,} of {counted(expected, 'answer')} are in. If the run was interrupted, "
        "running the same command again resumes it.",
        icon=":material/hourglass_top:",
    )


def _header(run: RunSummary, stored: StoredVerdict) -> None:
    """Show the variant with its verdict, the run and its evalsets; on a phone, a link to the decision."""
    sets = ", ".join(f"{item.name} {item.version} ({item.size})" for item in run.evalsets)
    st.html(
        f'<div class="qg-title">{escape(stored.verdict.variant)} {chip(stored.verdict.word)}</div>'
        f'<div class="quiet">{when(run.created_at)} · run {escape(run.run_id)} · {escape(sets)}</div>'
        '<a class="qg-phone" href="#decide">To your decision</a>'
    )


def _why(run: RunSummary, verdict: Verdict) -> None:
    """Show the reasons of the verdict, each with a link to the cases it is about, if there are such; after the first
    one, what changed since the last run."""
    sets = {item.name for item in run.evalsets}
    for index, reason in enumerate(verdict.reasons or ("no reason was recorded",)):
        measured = next((comparison for comparison in verdict.comparisons if _is_about(reason, comparison)), None)
        with st.container(horizontal=True, wrap=False, vertical_alignment="center"):
            st.html(f'<div class="{"qg-long" if index else "qg-reason"}">{escape(reason)}</div>', width="stretch")
            if measured is not None:
                query = {"run": run.run_id, "variant": verdict.variant, **cases_query(measured, sets)}
                st.page_link("views/verdict.py", label="Cases", icon=":material/table_rows:", query_params=query)
        if not index:
            st.caption(MEANING.get(verdict.word, ""))
            _since_last_run(run, verdict)


def _since_last_run(run: RunSummary, verdict: Verdict) -> None:
    """Show what changed since the last run of this gate file, with a link to it; nothing if there is none."""
    with explained():
        last = data.verdict_before(run.run_id, verdict.variant)
        if last is None:
            return
        head = f"<b>Since the last run of this gate file</b> ({when(last.created_at)}): "
        st.html(f'<div class="qg-long">{head}{escape(since_last_text(last, verdict))}</div>')
        with st.container(horizontal=True):
            link("Last run", last.run_id, verdict.variant)
            link_compare(last.run_id, run.run_id)


def _is_about(reason: str, comparison: Comparison) -> bool:
    """Whether a reason is about this comparison and the table of cases can show it: flips, or drift."""
    shown = comparison.lost is not None or comparison.metric.startswith("drift.")
    return shown and not comparison.against and reason.startswith(comparison.head)


show()
