"""Stored text as a page may show it: escaped, with what is invisible made visible; and the pieces of HTML we own.

Model text is hostile. Every function here returns HTML in which stored text is only ever text.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Sequence
from datetime import datetime
from difflib import SequenceMatcher

from qualgate.escaping import visible

COLOURS = {  # one colour a word, everywhere; the word itself always stands beside it
    "approve": "#1a7f37",
    "block": "#cf222e",
    "review": "#9a6700",
    "undecided": "#57708a",
    "invalid": "#24292f",
    "proven": "#1a7f37",
    "broken": "#cf222e",
}
DIFF_PIECES = 3000  # past this, what lies between the common beginning and end is marked as one change

_MARKDOWN = re.compile(r"[\\`*_{}\[\]()<>#+\-.!|~$:]")
_PIECES = re.compile(r"\w+|\s+|[^\w\s]")


def escape(text: str) -> str:
    return html.escape(visible(text))


def label(text: str) -> str:
    """For the labels of Streamlit's own elements, which read Markdown: every mark of it escaped."""
    return _MARKDOWN.sub(r"\\\g<0>", visible(text))


def chip(word: str | None) -> str:
    """A verdict word as a coloured label."""
    if word is None:
        return '<span class="qg-chip qg-open">no verdict</span>'
    return f'<span class="qg-chip" style="background:{COLOURS.get(word, "#57708a")}">{escape(word)}</span>'


def overrules(action: str, word: str | None) -> bool:
    """Whether a person passed what the gate did not, or stopped what it passed; `review` asks for a person."""
    return word in ("block", "undecided", "invalid") if action == "approve" else word == "approve"


def table(headers: Sequence[str], rows: Iterable[Sequence[str]], numbers: Iterable[int] = ()) -> str:
    """Cells are HTML already: pass stored text through `escape`. `numbers`: columns set to the right."""
    marks = dict.fromkeys(numbers, ' class="qg-number"')

    def row(tag: str, cells: Sequence[str]) -> str:
        return "".join(f"<{tag}{marks.get(index, '')}>{cell}</{tag}>" for index, cell in enumerate(cells))

    body = "".join(f"<tr>{row('td', cells)}</tr>" for cells in rows)
    return f'<div class="qg-scroll"><table class="qg-table"><tr>{row("th", headers)}</tr>{body}</table></div>'


def diff(before: str, after: str) -> tuple[str, str]:
    """Both texts, word piece by word piece; what only one of them has is marked."""
    old, new = _PIECES.findall(visible(before)), _PIECES.findall(visible(after))
    start = _common(old, new)
    end = _common(old[start:][::-1], new[start:][::-1])
    middle_old, middle_new = old[start : len(old) - end], new[start : len(new) - end]
    left, right = [_plain(old[:start])], [_plain(new[:start])]
    if len(middle_old) + len(middle_new) > DIFF_PIECES:
        left.append(_marked("del", middle_old))
        right.append(_marked("ins", middle_new))
    else:
        matcher = SequenceMatcher(None, middle_old, middle_new, autojunk=False)
        for tag, i, j, k, m in matcher.get_opcodes():
            same = tag == "equal"
            left.append(_plain(middle_old[i:j]) if same else _marked("del", middle_old[i:j]))
            right.append(_plain(middle_new[k:m]) if same else _marked("ins", middle_new[k:m]))
    left.append(_plain(old[len(old) - end :]))
    right.append(_plain(new[len(new) - end :]))
    return _block("".join(left)), _block("".join(right))


def plain_block(text: str) -> str:
    return _block(escape(text))


def _common(old: Sequence[str], new: Sequence[str]) -> int:
    return next((i for i, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new)))


def _plain(pieces: Sequence[str]) -> str:
    return html.escape("".join(pieces))


def _marked(tag: str, pieces: Sequence[str]) -> str:
    if not pieces:
        return ""
    # A changed line end would be an invisible mark.
    return f"<{tag}>{html.escape(''.join(pieces)).replace(chr(10), '↵' + chr(10))}</{tag}>"


def _block(content: str) -> str:
    return f'<div class="qg-text">{content or "<i>empty answer</i>"}</div>'


def when(stamp: str | None) -> str:
    """A stored time, to the minute."""
    return "–" if stamp is None else f"{datetime.fromisoformat(stamp):%Y-%m-%d %H:%M} UTC"
