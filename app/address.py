"""Read and write the parameters of a page's URL."""

from __future__ import annotations

import streamlit as st

LONGEST_NAME = 620  # characters of EVALSET/CASE, as in the store's columns


def parameter(name: str) -> str:
    """Return a parameter of the address. Anybody can write it, so it is cut to the longest name in the store."""
    return st.query_params.get(name, "")[:LONGEST_NAME]


def keep(**shown: str) -> None:
    """Put what the page shows into the address, so that it can be shared; "" is left out. Streamlit itself keeps the
    old address when a link leads to the same page."""
    for name, value in shown.items():
        if value:
            st.query_params[name] = value
        else:
            st.query_params.pop(name, None)
