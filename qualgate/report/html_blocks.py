"""Render blocks as HTML, for the report's page and for the dashboard.

Model text is hostile: it is escaped and its invisible characters are shown.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Sequence
from html import escape

from qualgate.report.blocks import Block, Cell, Figure, Lines, Note, Paste, Section, Table, Terms
from qualgate.report.plots.drawing import SIGNS
from qualgate.text.escaping import visible_line

_LONG_WORD = re.compile(r"[^\s<>\"=]{31,}")  # may break inside the word


def text_html(text: str) -> str:
    """Escape stored text on one line."""
    return escape(visible_line(text))


def chip(word: str) -> str:
    """Render a verdict word as a coloured label."""
    return f'<span class="chip {text_html(word)}">{text_html(word)}</span>'


def section_html(section: Section, level: int = 3) -> str:
    """Render a section under a heading of this level."""
    heading = f"<h{level}>{text_html(section.title)}</h{level}>" if section.title else ""
    return heading + "\n".join(map(block_html, section.blocks))


def block_html(block: Block) -> str:
    """Render a block; "" if it shows nothing."""
    match block:
        case Table(rows=rows) if rows:
            title = f'<p class="title">{text_html(block.title)}</p>' if block.title else ""
            cells = ([*map(_cell, row)] for row in rows)
            return title + table_html([*map(text_html, block.heads)], cells, block.numbers)
        case Terms(rows=rows):
            terms = (f"<div><dt>{text_html(term)}</dt><dd>{text_html(value)}</dd></div>" for term, value in rows)
            return f"<dl>{''.join(terms)}</dl>"
        case Figure(picture=picture, caption=caption) if picture is not None:
            return f"<figure><figcaption>{text_html(caption)}</figcaption>{picture.html}</figure>"
        case Note(text=text, strong=strong, after=after, kind=kind):
            strong_html = strong and f"<b>{text_html(strong)}</b>"
            css_class = {"quiet": ' class="quiet"', "alert": ' class="loud"'}.get(kind, "")
            return f"<p{css_class}>{' '.join(filter(None, (text_html(text), strong_html, text_html(after))))}</p>"
        case Lines(lines=lines) if lines:
            return f"<ul>{''.join(f'<li>{text_html(line)}</li>' for line in lines)}</ul>"
        case Paste(label=label, lines=lines):
            pasted = "\n".join(map(text_html, lines))
            return f'<p class="quiet">{text_html(label)}</p><pre>{pasted}</pre>'
    return ""


def table_html(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Collection[int] = ()) -> str:
    """Render a table. heads, rows: HTML already. numbers: columns aligned right.

    On a phone each row is a card, so a cell carries its column's name.
    """
    classes = ["number" if index in numbers else "" for index in range(len(heads))]
    head = "".join(f'<th class="{css_class}">{name}</th>' for name, css_class in zip(heads, classes, strict=True))
    lines = []
    for row in rows:
        cells = ""
        for name, css_class, cell in zip(heads, classes, row, strict=True):
            cell_class = f"{css_class} long".strip() if _LONG_WORD.search(cell) else css_class
            cells += f'<td class="{cell_class}" data-name="{name}"><div>{cell}</div></td>'
        lines.append(f"<tr>{cells}</tr>")
    body = "".join(lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return text_html(cell)
    word = text_html(cell.text)
    note = f"<br><span class=quiet>{text_html(cell.note)}</span>" if cell.note else ""
    if cell.form == "differs":
        return f"<ins>{word}</ins>{note}"
    if cell.text not in SIGNS:
        return f"{chip(cell.text)}{note}"
    return f'<span class="word"><span class="sign {word}">{SIGNS[cell.text]}</span> {word}</span>{note}'
