"""What a page's address asks for."""

from __future__ import annotations

import streamlit as st

LONGEST_NAME = 200  # as the store's columns


def asked(name: str) -> str:
    """What the address asks for: anybody's text, so never longer than a name in the store can be."""
    return st.query_params.get(name, "")[:LONGEST_NAME]
