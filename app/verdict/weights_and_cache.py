"""Of an arm with other weights and another cache: what each did alone, and what they do together."""

from __future__ import annotations

import streamlit as st
from qualgate_app.text import escape, table

from qualgate.records import Verdict
from qualgate.report.arms import weights_and_cache_heads, weights_and_cache_rows


def show_weights_and_cache(verdict: Verdict) -> None:
    """The same as in a report."""
    found = verdict.weights_and_cache
    if found is None:
        return
    st.subheader("Weights and cache, apart and together", anchor="cache")
    rows = [[escape(cell) for cell in row] for row in weights_and_cache_rows(found)]
    heads = [escape(head) for head in weights_and_cache_heads(found)]
    st.html(table(heads, rows, numbers=range(2, 6)))
