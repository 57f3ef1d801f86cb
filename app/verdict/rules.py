"""Show a variant's measurements: its size, each rule with its bounds, and its serving costs."""

from __future__ import annotations

from collections.abc import Sequence

import streamlit as st
from qualgate_app import charts, data
from qualgate_app.text import chip, escape, table

from qualgate.formatting import bounds_text, difference_text, flips_text, size_text, value_text
from qualgate.records import ArmService
from qualgate.report import plots
from qualgate.report.arms import SERVICE_HEADS, service_notes, service_row
from qualgate.store.queries import RunSummary, StoredVerdict, judged_by


def show_sizes(run: RunSummary, stored: StoredVerdict) -> None:
    """Show the weights' size beside the baseline's, and how many cases changed by the deciding rules."""
    variant, deciding = stored.verdict.variant, judged_by(stored.verdict, {item.name for item in run.evalsets})
    moved = data.flipped_cases(run.run_id, variant, deciding)
    baseline, arm = run.arms[0], next(arm for arm in run.arms if arm.name == variant)
    size, full = arm.sizes, baseline.sizes
    # The size on disk: in memory the baseline runs in float32, whatever its weights' dtype.
    ratio = full.bytes_on_disk / size.bytes_on_disk if size and full and size.bytes_on_disk else None
    cells = st.container(horizontal=True)
    by = ", ".join(metric if evalset is None else f"{metric} of {escape(evalset)}" for metric, evalset in deciding)
    help = f"cases, each once, by {by or 'any score'}: the broken rules, or the critical ones where none is"
    on_disk = size_text(size.bytes_on_disk) if size else "–"
    cells.metric("Weights on disk", on_disk, _ratio_text(ratio), delta_color="off", delta_arrow="off", width=160)
    memory_note = "in memory; what is not quantized is held in float32 while it runs"
    cells.metric("Bits a weight", f"{size.effective_bits:.2f}" if size else "–", help=memory_note, width=160)
    cells.metric("Right → wrong", moved["lost"], help=help, width=160)
    cells.metric("Wrong → right", moved["gained"], help=help, width=160)


def _ratio_text(ratio: float | None) -> str | None:
    """Return how much smaller or larger the variant is. ratio: the baseline's bytes by the variant's; None: unknown."""
    if ratio is None:
        return None
    if ratio == 1:
        return "same size"
    return f"{ratio:.1f}× smaller" if ratio > 1 else f"{1 / ratio:.1f}× larger"


def show_rules(stored: StoredVerdict) -> None:
    """Show each rule's bounds beside its limit, as a picture and as a table."""
    comparisons = stored.verdict.comparisons
    if not comparisons:
        return
    st.subheader("Rules", anchor="rules")
    for heading, picture in plots.margins(comparisons, stored.policy):
        st.caption(heading)
        charts.show(picture, "the table below in a picture")
    level = f"{100 * (1 - stored.policy.alpha):.0f}"
    st.html(
        table(
            [
                "",
                "rule",
                "slice",
                "tier",
                "n",
                "baseline",
                "variant",
                "difference",
                f"{level} % bounds",
                "lost / gained",
            ],
            [
                (
                    chip(comparison.status),
                    escape(comparison.rule),
                    escape(comparison.slice),
                    escape(comparison.tier),
                    f"{comparison.n:,}",
                    value_text(comparison.metric, comparison.baseline),
                    value_text(comparison.metric, comparison.variant),
                    difference_text(comparison),
                    bounds_text(comparison),
                    flips_text(comparison),
                )
                for comparison in comparisons
            ],
            numbers=range(4, 10),
        )
    )
    st.caption("Differences of rates are in points. Each bound is one-sided at the level shown.")
    show_services(stored.verdict.services)


def show_services(services: Sequence[ArmService]) -> None:
    """Show each arm's serving costs and accepted answers, if measured."""
    if services:
        rows = [[escape(cell) for cell in row] for row in map(service_row, services)]
        st.html(table(SERVICE_HEADS, rows, numbers=(1, 3)))
        st.html("".join(f'<div class="qg-quiet">{escape(line)}</div>' for line in service_notes(services)))
