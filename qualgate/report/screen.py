"""Fit text to the width of the reader's screen. Files, pipes and logs have no width: their lines stay whole."""

from __future__ import annotations

import io
import os
import re
import shutil
import sys
import textwrap
from typing import IO, Any, cast

from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from qualgate.text.escaping import unread

WIDTH_WITHOUT_SCREEN = 1_000_000  # a table takes what it needs, and no line is broken
NARROWEST = 40
WIDEST = 120  # columns that the tables of a plan take
_PASTED = re.compile(r"`[^`]*`|(?<=: )qualgate .*?(?=\.?$|\. )|^\S.*?\.(?:ya?ml|jsonl):\d+(?=:)")


def width() -> int | None:
    """Return the columns of the terminal at stdout, or COLUMNS if set; else None."""
    setting = os.environ.get("COLUMNS", "")
    if not setting.isdecimal() and not sys.stdout.isatty():
        return None
    return max(NARROWEST, shutil.get_terminal_size().columns)


def fit(text: str) -> str:
    """Wrap lines between words; a continuation starts below the line's last column."""
    columns = width()
    return text if columns is None else _fitted(text, columns)


def fit_error(text: str) -> str:
    """Wrap lines as `fit` does, for stderr, which may be a terminal when stdout is not, and the other way round."""
    if not sys.stderr.isatty():
        return text
    setting = os.environ.get("COLUMNS", "")
    try:
        columns = int(setting) if setting.isdecimal() else os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:  # a terminal without a size
        return text
    return _fitted(text, max(NARROWEST, columns))


def _fitted(text: str, columns: int) -> str:
    return "\n".join(row for line in text.split("\n") for row in _rows(line, columns))


def _rows(line: str, columns: int) -> list[str]:
    """Wrap one line, but keep text to be pasted (`code`, a command after a colon, FILE:LINE) on one row."""
    if len(line) <= columns:
        return [line]
    column_starts = [gap.end() for gap in re.finditer(r"(?<=\S)  +", line) if gap.end() <= columns // 2]
    indent = " " * (column_starts[-1] if column_starts else len(line) - len(line.lstrip()) + 2)
    rows = textwrap.wrap(
        _PASTED.sub(lambda match: match.group().replace(" ", "\0"), line), columns, subsequent_indent=indent,
        replace_whitespace=False, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [row.replace("\0", " ") for row in rows]


class _Unread:
    """stdout with the commands that a CI runner would obey made harmless."""

    def write(self, text: str) -> int:
        return sys.stdout.write(unread(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stdout, name)


def console() -> Console:
    """Return a console on stdout, with colours only on a terminal."""
    return Console(file=cast(IO[str], _Unread()), highlight=False, width=width() or WIDTH_WITHOUT_SCREEN)


def indented(text: str | Text, by: int = 2) -> Padding:
    """Indent text so that its continuation lines keep the indent."""
    return Padding(Text(text) if isinstance(text, str) else text, (0, 0, 0, by), expand=False)


def table_lines(table: Table, columns: int) -> list[str]:
    """Return the table's lines without colours."""
    out = io.StringIO()
    Console(file=out, highlight=False, width=columns, color_system=None).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]
