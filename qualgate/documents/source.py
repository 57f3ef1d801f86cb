"""Read a file's text once, within a size limit; text that is not UTF-8 is a fault that names its line."""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from qualgate.documents.faults import Fault
from qualgate.errors import UsageError
from qualgate.errors.misplaced import unreadable

MAX_BYTES = 256 * 1024
MAX_DEPTH = 64

Place = tuple[str | int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """A file that was read: its value, the line of every place in it, and its faults as YAML."""

    path: Path
    text: str
    value: Any  # None when `faults` left nothing to read
    lines: dict[Place, int] = field(default_factory=dict)
    faults: tuple[Fault, ...] = ()

    def line(self, place: Place) -> int:
        """Return the line of the value at `place`, or of the nearest value around it."""
        while place and place not in self.lines:
            place = place[:-1]
        return self.lines.get(place, 1)

    def fault(self, place: Place, message: str, planned: bool = False) -> Fault:
        """Return a fault of the value at `place`."""
        return Fault(self.path, self.line(place), message, planned)


def read_text(path: Path) -> tuple[str, Fault | None]:
    """Return the text of `path`, or a fault. UsageError for a missing file, or one that is far too large."""
    return _decode(path, _bytes(path))


class TooDeep(Exception):
    """Raised for nesting deeper than MAX_DEPTH. Its argument is the line."""


def not_yaml(path: Path, error: yaml.MarkedYAMLError) -> Fault:
    """Return the fault of a file that is not valid YAML, in a user's words."""
    mark = error.problem_mark or error.context_mark
    problem = str(error.problem or error.context)
    if "\\t" in problem:
        problem = "a tab; indent with spaces"
    elif problem.startswith("expected <block end>"):
        problem = "this line is indented less or more than the lines it goes with"
    elif path.suffix == ".jsonl":
        problem = f"these are lines of JSON; name the YAML file that goes with them, {path.with_suffix('.yaml').name}"
    return Fault(path, mark.line + 1 if mark else 1, f"not YAML: {problem}")


def _bytes(path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise UsageError(unreadable(path, error)) from None
    if len(raw) > MAX_BYTES:
        raise UsageError(f"{path}: larger than {MAX_BYTES // 1024} KiB, which no such file needs to be")
    return raw


def _decode(path: Path, raw: bytes) -> tuple[str, Fault | None]:
    """Decode UTF-8, or UTF-16 with a byte-order mark; anything else is a fault at the offending line."""
    encoding = "utf-16" if raw.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    try:
        text = raw.decode(encoding)
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        return "", Fault(path, line, f"not valid {encoding.removesuffix('-sig').upper()}; save the file as UTF-8")
    if match := yaml.reader.Reader.NON_PRINTABLE.search(text):
        line = text.count("\n", 0, match.start()) + 1
        return "", Fault(
            path, line, f"the character U+{ord(match[0]):04X} cannot stand in YAML; save the file as UTF-8"
        )
    return text, None
