"""The report's pictures on a page of the dashboard, each in a frame of its own that can run and load nothing."""

from __future__ import annotations

import streamlit as st

from qualgate.report import plots
from qualgate.report.page import page

# One line a label, so that a picture is as high as it says; what is cut off is said under the pointer.
STYLE = """body { margin: 0; background: var(--page); color: var(--text);
  font: 1rem/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "Noto Sans", sans-serif; }
.quiet { color: var(--quiet); font-size: .86rem; margin: 4px 0; }
.plot .label { white-space: nowrap; overflow: hidden; text-overflow: ellipsis; }
"""
BARE = "body { margin: 0; }\n"  # of a picture with a style of its own


def show(picture: plots.Picture, alt: str) -> None:
    """Draw it. Streamlit's own HTML lets no SVG through, and an image says nothing under a pointer."""
    style = BARE + picture.style if picture.style else plots.style() + STYLE
    st.iframe(page("", style, picture.html), height=picture.height + SLACK, alt=alt)


SLACK = 10  # px
