"""The beginning of what a path holds, by which its format is recognised."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

HEAD = 65_536  # bytes of a file


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The beginning of what a path holds."""

    path: Path
    names: tuple[str, ...] = ()  # of a folder's files
    head: bytes = b""  # of a file

    @property
    def keys(self) -> frozenset[str]:
        """Keys of the first line, if it is a whole JSON object."""
        line = self.head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return frozenset()
        return frozenset(value) if isinstance(value, dict) else frozenset()

    def says(self, *texts: str) -> bool:
        """Whether the head holds each of these texts."""
        return all(text.encode() in self.head for text in texts)
