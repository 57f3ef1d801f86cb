"""A worker's messages on a terminal, where the coordinator's progress bar stands in the last row."""

from __future__ import annotations

import sys
from typing import Any, TextIO, cast

_CLEAR_ROW = "\r\x1b[2K"


def say_above_the_bar() -> None:
    """Have each line that this process writes take the bar's row, in place of going on behind it; the bar is drawn
    again below. Before anything is imported that keeps stderr for its log."""
    if sys.stderr is not None and sys.stderr.isatty() and not isinstance(sys.stderr, _Clearing):
        sys.stderr = cast(TextIO, _Clearing(sys.stderr))


class _Clearing:
    def __init__(self, stream: TextIO) -> None:
        self._stream, self._begins = stream, True

    def write(self, text: str) -> int:
        if text:
            self._stream.write((_CLEAR_ROW if self._begins else "") + text)
            self._begins = text.endswith("\n")
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
