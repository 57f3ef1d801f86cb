"""Escape stored text for a page, with invisible characters made visible, and build the dashboard's own HTML.

Model text is hostile: every function here returns HTML with stored text escaped.
"""

from __future__ import annotations

import html
import re
from datetime import UTC, datetime

from qualgate.report import html_blocks
from qualgate.report.diff import EMPTY, marked
from qualgate.text.escaping import visible
from qualgate.text.numbers import counted

_MARKDOWN = re.compile(r"[\\`*_{}\[\]()<>#+\-.!|~$:]")


def escape(text: str) -> str:
    """Escape stored text as HTML, with line ends unchanged."""
    return html.escape(visible(text))


def label(text: str) -> str:
    """Escape stored text for labels of Streamlit's own elements, which render Markdown."""
    return _MARKDOWN.sub(r"\\\g<0>", visible(text))


def chip(word: str | None) -> str:
    """Render a verdict word as a coloured label."""
    return '<span class="chip open">no verdict</span>' if word is None else html_blocks.chip(word)


def overrules(action: str, word: str | None) -> bool:
    """Whether a decision contradicts the gate's verdict; `review` asks for a person, so neither decision does."""
    return word in ("block", "undecided", "invalid") if action == "approve" else word == "approve"


def diff(before: str, after: str) -> tuple[str, str]:
    """Render both answers, each in a block, with differences marked."""
    before_html, after_html = marked(before, after)
    return _block(before_html), _block(after_html)


def plain_block(text: str) -> str:
    """Render stored text in a block of its own."""
    return _block(escape(text))


def _block(content: str) -> str:
    return f'<div class="qg-text">{content or EMPTY}</div>'


def when(stamp: str | None) -> str:
    """Format a stored time, to the minute."""
    return "–" if stamp is None else f"{datetime.fromisoformat(stamp):%Y-%m-%d %H:%M} UTC"


def waits(since: str, now: datetime | None = None) -> str:
    """Return how long something waits: "waits for 3 days". since: a stored time. now: for tests."""
    minutes = max(0, int(((now or datetime.now(UTC)) - datetime.fromisoformat(since)).total_seconds()) // 60)
    if minutes < 60:
        return f"waits for {counted(minutes, 'minute')}"
    hours = minutes // 60
    return f"waits for {counted(hours, 'hour') if hours < 48 else counted(hours // 24, 'day')}"
