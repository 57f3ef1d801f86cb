"""Show a verdict's setting: the arms and their identities, the gate file."""

from __future__ import annotations

import streamlit as st

from qualgate.report.blocks import Section, Table
from qualgate.report.sections import setting_sections
from qualgate.report.summary import Report
from qualgate.store.queries import RunSummary, StoredVerdict
from qualgate.text.escaping import visible
from qualgate_app.blocks import show_sections
from qualgate_app.text import escape, when


def show_setting(report: Report, stored: StoredVerdict) -> None:
    """Show, folded, arms and gate file."""
    run = report.run
    for scoring in run.scorings:
        st.html(f"<p>Scoring {scoring.number}, {escape(scoring.text)}</p>")
    with st.expander("Arms and identities"):
        show_sections([*setting_sections(report), _identities(run)])
    with st.expander("Gate file"):
        _gate_file(run, stored)


def _identities(run: RunSummary) -> Section:
    rows = tuple(
        (
            arm.name,
            arm.spec.model,
            *(value[:12] for value in (arm.planned.weights, arm.planned.tokenizer, arm.planned.template)),
            arm.planned.engine,
        )
        for arm in run.arms
    )
    heads = ("arm", "model", "weights sha256", "tokenizer", "template", "engine")
    return Section("Identities", (Table(heads=heads, rows=rows),))


def _gate_file(run: RunSummary, stored: StoredVerdict) -> None:
    """Show the run's gate file, and before it the policy that decided if that is another one."""
    if stored.policy != run.policy:
        st.markdown("**This verdict was made by another policy than that of the run's gate file.** Its rules:")
        tiers = [f"{rule.id} · {rule.tier}" for rule in stored.policy.rules]
        rules = "\n".join([*tiers, f"alpha {stored.policy.alpha:g} · review {stored.policy.review}"])
        st.code(visible(rules), language=None, wrap_lines=True)
        st.caption("The run's gate file:")
    st.code(visible(run.gate_file), language=None, wrap_lines=True)
    st.caption(f"verdict {stored.sha256[:16]}… of {when(stored.created_at)} · policy {stored.policy_sha256[:16]}…")
