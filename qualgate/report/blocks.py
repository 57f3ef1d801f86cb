"""Blocks of a report: each subject builds them once, and every format renders them.

Text in a block is stored text as it is. The renderer makes it visible and escapes it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from qualgate.report.plots.drawing import Picture


@dataclass(frozen=True, slots=True)
class Cell:
    """A cell that is more than text. status: a coloured word; differs: not the same in all columns of its row."""

    text: str
    form: Literal["status", "differs"]
    note: str = ""  # smaller, behind or below the text


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Column heads, and rows with a cell for each; not shown without rows."""

    heads: tuple[str, ...]
    rows: tuple[tuple[str | Cell, ...], ...]
    numbers: Collection[int] = ()  # columns aligned right
    title: str = ""  # over the table, but not in Markdown
    spare: Collection[int] = ()  # columns that a narrow terminal leaves out


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """Named values. brief: in text they follow each other on one line."""

    rows: tuple[tuple[str, str], ...]
    brief: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """A picture with its caption. lines: its content as text; () if a table beside it has the numbers."""

    picture: Picture | None
    caption: str
    lines: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Note:
    """A paragraph. strong: words in bold between `text` and `after`, a space apart from them."""

    text: str
    strong: str = ""
    after: str = ""
    kind: Literal["plain", "quiet", "alert"] = "plain"


@dataclass(frozen=True, slots=True)
class Lines:
    """A list. most: items that a terminal shows."""

    lines: tuple[str, ...]
    most: int | None = None


@dataclass(frozen=True, slots=True)
class Paste:
    """Lines to be pasted as they are, below their label."""

    label: str
    lines: tuple[str, ...]


Block = Table | Terms | Figure | Note | Lines | Paste


@dataclass(frozen=True, slots=True)
class Section:
    """Blocks under a title; "" if they need none. word: a verdict beside it, not in Markdown."""

    title: str
    blocks: tuple[Block, ...]
    word: str = ""
