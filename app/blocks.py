"""Show a report's blocks on a page."""

from __future__ import annotations

from collections.abc import Iterable

import streamlit as st

from qualgate.report.blocks import Block, Figure, Lines, Note, Paste, Section
from qualgate.report.html_blocks import block_html
from qualgate.text.escaping import visible_line
from qualgate_app import charts
from qualgate_app.text import chip, escape, label


def show_sections(sections: Iterable[Section]) -> None:
    """Show each section's title, if it has one, and its blocks."""
    for section in sections:
        if section.word:
            st.html(f'<h3 class="qg-title">{escape(section.title)} {chip(section.word)}</h3>')
        elif section.title:
            st.subheader(label(section.title))
        for index, block in enumerate(section.blocks):
            _show(block, f"{section.title} {index}")


def _show(block: Block, place: str) -> None:
    """Show one block: a picture in a frame of its own, or as lines if its height is not known; text to be pasted with
    a button that copies it."""
    match block:
        case Figure(picture=picture, caption=caption) if picture is not None and picture.height:
            st.caption(label(caption))
            charts.show(picture, caption, place)
        case Figure(caption=caption, lines=lines):
            if lines:
                st.html(f'<p class="title">{escape(caption)}</p>{block_html(Lines(lines))}')
        case Note(kind="alert", text=text):
            st.warning(label(text), icon=":material/warning:")
        case Paste(label=name, lines=lines):
            st.html(f'<div class="quiet">{escape(name)}</div>')
            st.code("\n".join(map(visible_line, lines)), language=None, wrap_lines=True)
        case _:
            if html := block_html(block):
                st.html(html)
