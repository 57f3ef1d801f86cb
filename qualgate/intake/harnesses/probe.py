"""Look at the beginning of a path, by which readers recognise their format."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from qualgate.errors import UsageError
from qualgate.errors.misplaced import nearest_path, unreadable
from qualgate.intake.harnesses.containers import files_in

HEAD = 65_536  # bytes of a file that recognition looks at


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """The beginning of what a path holds."""

    path: Path
    names: tuple[str, ...] = ()  # of a folder's files
    head: bytes = b""  # of a file

    @property
    def keys(self) -> frozenset[str]:
        """Keys of the first line, if it is a JSON object; else the names before a colon in the head, which a JSON
        object over many lines has among its own."""
        line = self.head.removeprefix(b"\xef\xbb\xbf").partition(b"\n")[0]
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return frozenset()
        return frozenset(value) if isinstance(value, dict) else frozenset()

    def says(self, *texts: str) -> bool:
        """Whether the head holds each of these texts."""
        return all(text.encode() in self.head for text in texts)


def probed(path: Path) -> Probe:
    """Look at the beginning of a path. UsageError if it cannot be read, or is empty."""
    if path.is_dir():
        return Probe(path=path, names=files_in(path))
    try:
        with path.open("rb") as file:
            head = file.read(HEAD)
    except FileNotFoundError:
        raise UsageError(f"{path}: no such file or folder{nearest_path(path)}") from None
    except OSError as error:
        raise UsageError(unreadable(path, error)) from None
    if not head:
        raise UsageError(f"{path} is empty: there is nothing to compare.")
    return Probe(path=path, head=head)
