"""Show a plain message instead of a traceback if the store cannot be read."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import streamlit as st

from qualgate.errors import IntegrityError, QualgateError, StoreVersionError
from qualgate.text.escaping import visible
from qualgate_app import data
from qualgate_app.text import chip

HEADINGS: dict[type, str] = {
    StoreVersionError: "This store and this program do not fit together",
    IntegrityError: "Stored evidence is not what was recorded",
}


@contextmanager
def explained() -> Iterator[None]:
    """Show an error's message and the store's URL. Wraps each page and each part that is redrawn by itself."""
    try:
        yield
    except QualgateError as error:
        if isinstance(error, IntegrityError):
            st.html(chip("invalid"))
        st.header(HEADINGS.get(type(error), "The dashboard cannot show this"))
        st.text(visible(str(error)))
        st.caption("Store")
        st.code(data.url(), language=None, wrap_lines=True)
        st.button("Try again", icon=":material/refresh:")
