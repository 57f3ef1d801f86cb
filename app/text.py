"""Stored text as a page may show it: escaped, with what is invisible made visible; and the pieces of HTML we own.

Model text is hostile. Every function here returns HTML in which stored text is only ever text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from datetime import datetime

from qualgate.escaping import visible
from qualgate.report.diff import EMPTY, marked

_MARKDOWN = re.compile(r"[\\`*_{}\[\]()<>#+\-.!|~$:]")


def escape(text: str) -> str:
    """Stored text as HTML that is only text, its line ends kept."""
    return html.escape(visible(text))


def label(text: str) -> str:
    """For the labels of Streamlit's own elements, which read Markdown: every mark of it escaped."""
    return _MARKDOWN.sub(r"\\\g<0>", visible(text))


def chip(word: str | None) -> str:
    """A verdict word as a coloured label."""
    if word is None:
        return '<span class="qg-chip qg-open">no verdict</span>'
    return f'<span class="qg-chip {escape(word)}">{escape(word)}</span>'


def overrules(action: str, word: str | None) -> bool:
    """Whether a person passed what the gate did not, or stopped what it passed; `review` asks for a person."""
    return word in ("block", "undecided", "invalid") if action == "approve" else word == "approve"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """Cells are HTML already: pass stored text through `escape`. `numbers`: columns set to the right."""
    marks = dict.fromkeys(numbers, ' class="qg-number"')
    heads = "".join(f"<th{marks.get(index, '')}>{head}</th>" for index, head in enumerate(headers))

    def row(cells: Sequence[str]) -> str:
        named = enumerate(zip(headers, cells, strict=True))
        return "".join(
            f'<td data-name="{head}"{marks.get(index, "")}><div>{cell}</div></td>' for index, (head, cell) in named
        )

    body = "".join(f"<tr>{row(cells)}</tr>" for cells in rows)
    return f'<div class="qg-scroll"><table class="qg-table"><thead><tr>{heads}</tr></thead>{body}</table></div>'


def diff(before: str, after: str) -> tuple[str, str]:
    """Both answers, each in a block; what only one of them has is marked."""
    old, new = marked(before, after)
    return _block(old), _block(new)


def plain_block(text: str) -> str:
    """Stored text in a block of its own."""
    return _block(escape(text))


def _block(content: str) -> str:
    return f'<div class="qg-text">{content or EMPTY}</div>'


def when(stamp: str | None) -> str:
    """A stored time, to the minute."""
    return "–" if stamp is None else f"{datetime.fromisoformat(stamp):%Y-%m-%d %H:%M} UTC"
