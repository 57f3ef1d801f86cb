"""Show the effects of new weights and of a new cache, alone and together."""

from __future__ import annotations

import streamlit as st
from qualgate_app.text import escape, table

from qualgate.records import Verdict
from qualgate.report.arms import weights_and_cache_heads, weights_and_cache_rows


def show_weights_and_cache(verdict: Verdict) -> None:
    """Show the same table as a report does."""
    comparison = verdict.weights_and_cache
    if comparison is None:
        return
    st.subheader("Weights and cache, apart and together", anchor="cache")
    rows = [[escape(cell) for cell in row] for row in weights_and_cache_rows(comparison)]
    heads = [escape(head) for head in weights_and_cache_heads(comparison)]
    st.html(table(heads, rows, numbers=range(2, 6)))
