"""Show a variant's size, and how many cases changed."""

from __future__ import annotations

import streamlit as st
from qualgate_app import data
from qualgate_app.text import escape

from qualgate.store.queries import RunSummary, StoredVerdict, judged_by
from qualgate.text.numbers import size_text


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
