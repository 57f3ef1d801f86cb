"""Define the pages; the entry script for Streamlit."""

from __future__ import annotations

from pathlib import Path

import streamlit as st

from qualgate_app.faults import explained
from qualgate_app.person import admitted

# Our own picture: Streamlit would fetch a page icon from the internet.
GATE = (
    '<svg xmlns="http://www.w3.org/2000/svg" width="{size}" height="28" viewBox="0 0 {size} 28">'
    '<path d="M3 24V9l9-6 9 6v15M3 14h18M8 24v-6h8v6" fill="none" stroke="#0b5cad" stroke-width="2.4"/>{name}</svg>'
)
NAME = (
    "<style>@media (prefers-color-scheme: dark) { text { fill: #e6edf3 } }</style>"
    '<text x="30" y="21" font-family="sans-serif" font-size="19" font-weight="700" fill="#1f2328">qualgate</text>'
)

st.set_page_config(page_title="qualgate", page_icon=GATE.format(size=28, name=""), layout="wide")
st.logo(GATE.format(size=132, name=NAME), size="large")
st.html(Path(__file__).with_name("style.css"))
page = st.navigation(
    [
        st.Page("views/queue.py", title="Queue", icon=":material/inbox:", url_path="home", default=True),
        st.Page("views/runs.py", title="Runs", icon=":material/history:", url_path="runs"),
        st.Page("views/nights.py", title="Nights", icon=":material/bedtime:", url_path="nights"),
        st.Page("views/loads.py", title="Loads", icon=":material/speed:", url_path="loads"),
        st.Page("views/verdict.py", title="Verdict", icon=":material/gavel:", url_path="verdict"),
        st.Page("views/queue.py", title="Queue", url_path="queue", visibility="hidden"),
        st.Page("views/decisions.py", title="Decisions", icon=":material/link:", url_path="decisions"),
    ],
    position="top",
)
with explained():
    if admitted():
        page.run()
