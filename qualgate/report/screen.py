"""How wide the reader's screen is, and text that fits it. A file, a pipe or a log has no width: lines stay whole."""

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

from qualgate.escaping import unread

WIDTH_WITHOUT_SCREEN = 1_000_000  # a table takes what it needs, and no line is broken
NARROWEST = 40
WIDEST = 120  # columns that the tables of a plan take
_PASTED = re.compile(r"`[^`]*`|(?<=: )qualgate .*?(?=\.?$|\. )|^\S.*?\.(?:ya?ml|jsonl):\d+(?=:)")


def width() -> int | None:
    """Columns of the terminal that stdout is, or that COLUMNS says; None: neither."""
    told = os.environ.get("COLUMNS", "")
    if not told.isdecimal() and not sys.stdout.isatty():
        return None
    return max(NARROWEST, shutil.get_terminal_size().columns)


def fit(text: str) -> str:
    """`text` with its lines wrapped between words; what continues a line stands below its last column."""
    columns = width()
    return text if columns is None else _fitted(text, columns)


def fit_error(text: str) -> str:
    """`fit` for stderr, which may be a terminal where stdout is none, and the other way round."""
    if not sys.stderr.isatty():
        return text
    told = os.environ.get("COLUMNS", "")
    try:
        columns = int(told) if told.isdecimal() else os.get_terminal_size(sys.stderr.fileno()).columns
    except OSError:  # a terminal without a size
        return text
    return _fitted(text, max(NARROWEST, columns))


def _fitted(text: str, columns: int) -> str:
    return "\n".join(row for line in text.split("\n") for row in _rows(line, columns))


def _rows(line: str, columns: int) -> list[str]:
    """What is meant to be pasted (`code`, a command after a colon, the place of a fault) stays on one row."""
    if len(line) <= columns:
        return [line]
    begun = [gap.end() for gap in re.finditer(r"(?<=\S)  +", line) if gap.end() <= columns // 2]
    indent = " " * (begun[-1] if begun else len(line) - len(line.lstrip()) + 2)
    rows = textwrap.wrap(
        _PASTED.sub(lambda found: found.group().replace(" ", "\0"), line), columns, subsequent_indent=indent,
        replace_whitespace=False, break_long_words=False, break_on_hyphens=False,
    )  # fmt: skip
    return [row.replace("\0", " ") for row in rows]


class _Unread:
    """stdout, but for what a CI runner would obey once the lines are laid out."""

    def write(self, text: str) -> int:
        return sys.stdout.write(unread(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stdout, name)


def console() -> Console:
    """To stdout; colours only on a terminal."""
    return Console(file=cast(IO[str], _Unread()), highlight=False, width=width() or WIDTH_WITHOUT_SCREEN)


def indented(text: str | Text, by: int = 2) -> Padding:
    """What does not fit on its first row goes on below it, not at the edge."""
    return Padding(Text(text) if isinstance(text, str) else text, (0, 0, 0, by), expand=False)


def table_lines(table: Table, columns: int) -> list[str]:
    """The table without colours."""
    out = io.StringIO()
    Console(file=out, highlight=False, width=columns, color_system=None).print(table)
    return [line.rstrip() for line in out.getvalue().splitlines()]
