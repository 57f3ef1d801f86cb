"""Entry script: the pages, and a plain page instead of a traceback when the store cannot be read."""

from __future__ import annotations

from pathlib import Path

import streamlit as st
from qualgate_app import data
from qualgate_app.text import chip

from qualgate.errors import IntegrityError, QualgateError, StoreVersionError
from qualgate.escaping import visible

# Our own picture: Streamlit fetches its icons for a page from outside the machine.
GATE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="28" viewBox="0 0 {size} 28">'
    '<path d="M3 24V9l9-6 9 6v15M3 14h18M8 24v-6h8v6" fill="none" stroke="#0b5cad" stroke-width="2.4"/>{name}</svg>'
)
NAME = '<text x="30" y="21" font-family="sans-serif" font-size="19" font-weight="700" fill="#1f2328">qualgate</text>'

st.set_page_config(page_title="qualgate", page_icon=GATE.format(size=28, name=""), layout="wide")
st.logo(GATE.format(size=132, name=NAME), size="large")
st.html(Path(__file__).with_name("style.css"))
page = st.navigation(
    [
        st.Page("views/queue.py", title="Queue", icon=":material/inbox:", url_path="queue", default=True),
        st.Page("views/runs.py", title="Runs", icon=":material/history:", url_path="runs"),
        st.Page("views/nights.py", title="Nights", icon=":material/bedtime:", url_path="nights"),
        st.Page("views/loads.py", title="Loads", icon=":material/speed:", url_path="loads"),
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
    st.text(visible(str(error)))
    st.caption("Store")
    st.code(data.url(), language=None)
    st.button("Try again", icon=":material/refresh:")
