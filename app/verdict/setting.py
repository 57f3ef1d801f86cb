"""Show a verdict's setting: drift along the answers, the arms and their identities, the gate file."""

from __future__ import annotations

import streamlit as st
from qualgate_app import charts, data
from qualgate_app.text import escape, table, when

from qualgate.escaping import visible
from qualgate.formatting import size_text
from qualgate.report import plots, served
from qualgate.store.queries import RunSummary, StoredVerdict


def show_setting(run: RunSummary, stored: StoredVerdict) -> None:
    """Show drift, and, folded, arms and gate file. Drift of invalid evidence is not drawn."""
    if stored.verdict.word != "invalid":
        _drift(run, stored.verdict.variant)
    for scoring in run.scorings:
        st.html(f"<p>Scoring {scoring.number}, {escape(scoring.text)}</p>")
    with st.expander("Arms and identities"):
        _arms(run)
    with st.expander("Gate file"):
        _gate_file(run, stored)


def _drift(run: RunSummary, variant: str) -> None:
    """Show the drift by token position, if it was measured."""
    picture = plots.drift(data.drift_by_position(run.run_id, variant))
    if picture is not None:
        st.subheader("Drift by position", anchor="drift")
        st.caption(f"{plots.DRIFT_CAPTION}.")
        st.caption("Teacher forcing on the baseline's own tokens. Drift ranks and warns; it never approves.")
        charts.show(picture, "mean KL at each token position")


def _arms(run: RunSummary) -> None:
    """Show a table of the arms: weights, kernel, size, model, progress, hashes; and name the engines."""
    st.html(
        table(
            [
                "arm",
                "weights",
                "kernel",
                "on disk",
                "model",
                "done",
                "errors",
                "weights sha256",
                "tokenizer",
                "template",
            ],
            [
                (
                    escape(arm.name),
                    escape(arm.weights),
                    escape(", ".join(arm.kernels) or "–"),
                    size_text(arm.sizes.bytes_on_disk) if arm.sizes else "–",
                    escape(arm.spec.model),
                    f"{arm.done:,} / {arm.expected:,}",
                    f"{arm.errors:,}",
                    *(
                        f"<code>{escape(value[:12])}</code>"
                        for value in (arm.planned.weights, arm.planned.tokenizer, arm.planned.template)
                    ),
                )
                for arm in run.arms
            ],
            numbers=(3, 5, 6),
        )
    )
    engines = "; ".join(dict.fromkeys(arm.planned.engine for arm in run.arms))
    st.html(f'<span class="qg-quiet">engine: {escape(engines)}</span>')
    _served(run)


def _served(run: RunSummary) -> None:
    """Show the settings of served arms with differences marked, and what their servers count of drafts."""
    names, settings = served.side_by_side(run.arms)
    if settings:
        rows = [
            (
                f"{'≠ ' if setting.differs else ''}{escape(setting.what)}",
                *(f"<ins>{escape(cell)}</ins>" if setting.differs else escape(cell) for cell in setting.cells),
            )
            for setting in settings
        ]
        st.markdown("**Served side by side** (≠ is not the same of all)")
        st.html(table(["", *map(escape, names)], rows))
    for line in filter(None, map(served.drafts_line, run.arms)):
        st.caption(visible(line))


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
