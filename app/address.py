"""Page addresses: the parameters of a URL, read and written."""

from __future__ import annotations

import streamlit as st

LONGEST_NAME = 620  # of a case behind its set's name, as the store's columns


def asked(name: str) -> str:
    """What the address asks for: anybody's text, so never longer than a name in the store can be."""
    return st.query_params.get(name, "")[:LONGEST_NAME]


def keep(**shown: str) -> None:
    """Put into the address what the page shows, so that it can be sent: a link that leads to the page it stands on
    changes what is asked for, and Streamlit leaves the address as it was. "" is left out."""
    for name, value in shown.items():
        if value:
            st.query_params[name] = value
        else:
            st.query_params.pop(name, None)
