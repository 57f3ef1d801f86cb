"""Entry script: the pages, and a plain page instead of a traceback when the store cannot be read."""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from qualgate_app import data
from qualgate_app.text import chip

from qualgate.errors import IntegrityError, QualgateError, StoreVersionError

st.set_page_config(page_title="qualgate", page_icon=":material/verified:", layout="wide")
st.html(Path(__file__).with_name("style.css"))
page = st.navigation(
    [
        st.Page("views/queue.py", title="Queue", icon=":material/inbox:", url_path="queue", default=True),
        st.Page("views/runs.py", title="Runs", icon=":material/history:", url_path="runs"),
        st.Page("views/verdict.py", title="Verdict", icon=":material/gavel:", url_path="verdict"),
        st.Page("views/decisions.py", title="Decisions", icon=":material/link:", url_path="decisions"),
    ],
    position="top",
)
try:
    page.run()
except QualgateError as error:
    heading = {
        StoreVersionError: "This store and this program do not fit together",
        IntegrityError: "Stored evidence is not what was recorded",
    }
    if isinstance(error, IntegrityError):
        st.html(chip("invalid"))
    st.header(heading.get(type(error), "The dashboard cannot show this"))
    st.text(str(error))
    st.caption("Store")
    st.code(data.url(), language=None)
    st.button("Try again", icon=":material/refresh:")
