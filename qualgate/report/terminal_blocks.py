"""Render blocks on a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator, Sequence

from rich import table as rich_table
from rich.cells import cell_len
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from qualgate.report.blocks import Block, Cell, Figure, Lines, Note, Paste, Section, Table, Terms
from qualgate.report.screen import WIDTH_WITHOUT_SCREEN, fit, indented, width
from qualgate.text.escaping import visible_line

STYLE = {
    "approve": "bold green",
    "block": "bold red",
    "review": "bold yellow",
    "undecided": "bold cyan",
    "invalid": "bold magenta",
    "proven": "green",
    "broken": "red",
    "fallen": "bold red",
    "no fall": "green",
    "pass": "green",
    "fail": "red",
}
WIDEST = 240  # columns of a table in a file or a pipe; a wider one is laid out row by row
GAP = 2  # columns between those of a table


def print_sections(console: Console, sections: Iterable[Section], indent: int = 0) -> None:
    """Print each section's title, if it has one, and its blocks below it."""
    for section in sections:
        blocks = [*_blocks(section.blocks, indent + 2 * bool(section.title), console.width)]
        if section.title and (blocks or section.word):
            word = (f"  {section.word}" if section.word else "", STYLE.get(section.word, "bold"))
            console.print(Text.assemble((fit(" " * indent + visible_line(section.title)), "bold"), word))
        for renderable in blocks:
            console.print(renderable, soft_wrap=isinstance(renderable, Text))  # text is wrapped already


def print_blocks(console: Console, blocks: Iterable[Block], indent: int = 0) -> None:
    """Print blocks without a title."""
    print_sections(console, [Section("", tuple(blocks))], indent)


def section_lines(sections: Iterable[Section]) -> list[str]:
    """Return the printed lines of sections, without colours."""
    out = io.StringIO()
    console = Console(file=out, highlight=False, width=width() or WIDTH_WITHOUT_SCREEN, color_system=None)
    print_sections(console, sections)
    return [line.rstrip() for line in out.getvalue().splitlines()]


def _blocks(blocks: Iterable[Block], indent: int, columns: int) -> Iterator[RenderableType]:
    for block in blocks:
        if isinstance(block, Table):
            yield from _table(block, indent, min(columns, WIDEST) - indent)
        else:
            for line, style in _lines(block):
                yield Text(fit(" " * indent + visible_line(line)), style=style)
        if isinstance(block, Paste):
            for line in block.lines:  # never wrapped
                yield Text(" " * (indent + 2) + visible_line(line))


def _lines(block: Block) -> Iterator[tuple[str, str]]:
    """Yield the block's lines, each with its style."""
    match block:
        case Terms(rows=rows, brief=True):
            yield "; ".join(f"{term} {value}" for term, value in rows), "dim"
        case Terms(rows=rows):
            yield from ((f"{term}: {value}", "") for term, value in rows)
        case Note(kind="alert", text=text):
            yield f"ALERT: {text}", "yellow"
        case Note(text=text, strong=strong, after=after, kind=kind):
            yield " ".join(filter(None, (text, strong, after))), "dim" if kind == "quiet" else ""
        case Figure(caption=caption, lines=[line]):
            yield f"{caption}: {line}", ""
        case Figure(caption=caption, lines=lines) if lines:
            yield f"{caption}:", ""
            yield from ((f"• {line}", "") for line in lines)
        case Lines(lines=lines, most=most):
            yield from ((f"• {line}", "") for line in lines[:most])
            if most is not None and len(lines) > most:
                yield f"• and {len(lines) - most:,} more", "dim"
        case Paste(label=label):
            yield f"{label}:", ""


def _table(table: Table, indent: int, room: int) -> Iterator[RenderableType]:
    """Yield the table: whole if it fits into `room` columns, else without its spare columns, else row by row."""
    if not table.rows:
        return
    if table.title:
        yield Text(fit(f"{' ' * indent}{visible_line(table.title)}"))
    columns = range(len(table.heads))
    texts = [[*map(visible_line, table.heads)], *([_text(cell).plain for cell in row] for row in table.rows)]
    for chosen in ([*columns], [column for column in columns if column not in table.spare]):
        if sum(max(cell_len(row[column]) for row in texts) + GAP for column in chosen) - GAP <= room:
            yield Padding(_columns(table, chosen), (0, 0, 0, indent), expand=False)
            return
    yield from (_stacked(table.heads, row, indent, room) for row in table.rows)


def _columns(table: Table, chosen: Sequence[int]) -> rich_table.Table:
    """Return the chosen columns as a table."""
    columns = rich_table.Table(box=None, pad_edge=False, padding=(0, GAP, 0, 0), header_style="dim")
    for column in chosen:
        head = Text(visible_line(table.heads[column]))
        columns.add_column(head, justify="right" if column in table.numbers else "left", no_wrap=True)
    for row in table.rows:
        columns.add_row(*(_text(row[column]) for column in chosen))
    return columns


def _stacked(heads: Sequence[str], row: Sequence[str | Cell], indent: int, room: int) -> Group:
    """Lay out one row for a narrow screen: its name and status, and below them every other cell with its head."""
    (first, *others), (head, *other_heads) = row, heads
    name, parts = _text(first), []
    if name.plain.isdecimal():
        name = Text.assemble(visible_line(head), " ", name)
    noted = any(isinstance(cell, Cell) and cell.note for cell in others)
    for head, cell in zip(other_heads, others, strict=True):
        if isinstance(cell, Cell) and cell.form == "status" and not noted:
            name = Text.assemble(name, "  ", _text(cell))
        elif (text := _text(cell)).plain not in ("", "–"):
            parts.append(Text.assemble((f"{visible_line(head)} ", "dim"), text))
    lines: list[Text] = []
    for part in parts:
        if lines and not noted and cell_len(lines[-1].plain) + 3 + cell_len(part.plain) <= room - 4:
            lines[-1] = Text.assemble(lines[-1], "   ", part)
        else:
            lines.append(part)
    return Group(indented(name, indent), *(indented(line, indent + 4) for line in lines))


def _text(cell: str | Cell) -> Text:
    if isinstance(cell, str):
        return Text(visible_line(cell))
    style = STYLE.get(cell.text, "cyan") if cell.form == "status" else "bold"
    return Text.assemble((visible_line(cell.text), style), f": {visible_line(cell.note)}" if cell.note else "")
