"""Show the report's pictures on the dashboard, each in a frame of its own that can run and load nothing."""

from __future__ import annotations

import streamlit as st

from qualgate.records.identity import sha256_text
from qualgate.report import plots
from qualgate.report.page import page

STYLE = """body { margin: 0; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
.quiet { color: var(--quiet); font-size: .86rem; margin: 4px 0; }
@media (max-width: 480px) { .plot { grid-template-columns: 1fr; } }
"""
# For a picture with a style of its own: black on white, 720 px wide. A phone shows the tables instead.
BARE = """body { margin: 0; background: light-dark(#fff, #000); }
@media (prefers-color-scheme: dark) { svg { filter: invert(1) hue-rotate(180deg); } }
"""
SLACK, LABEL = 10, 21  # px: below a picture, and per label if labels are above their rows
PHONE = """<style>@media (max-width: 640px) {{
  .st-key-{key} :is(iframe, :has(> iframe)) {{ height: {height}px !important; }} }}</style>"""


def show(picture: plots.Picture, alt: str, place: str) -> None:
    """Show a picture in a frame: Streamlit's own HTML drops SVG, and an image has no tooltips. place: on the page, as
    two pictures may be alike."""
    style = BARE + picture.style if picture.style else plots.style() + STYLE
    height = picture.height + SLACK
    key = f"chart-{sha256_text(place + picture.html)[:16]}"
    phone = 0 if picture.style else height + LABEL * picture.html.count('class="label"')
    st.html(PHONE.format(key=key, height=phone))
    with st.container(key=key):
        st.iframe(page("", style, picture.html, "light dark"), height=height, alt=alt)
