"""Faults of a user's file, each with its file and line, reported together."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from qualgate.errors import NotInThisVersion, UsageError, close_names

FAULTS_SHOWN = 20


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One fault in a user's file. planned: a key of the design that this version does not support."""

    path: Path
    line: int
    message: str
    planned: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def refuse(faults: Iterable[Fault]) -> NoReturn:
    """Raise UsageError with one line per fault, 20 at most; a fault repeated on many lines is listed once."""
    ordered = sorted(set(faults))
    alike: dict[tuple[Path, str], list[Fault]] = {}
    for fault in ordered:
        alike.setdefault((fault.path, fault.message), []).append(fault)
    lines = [
        f"{first}{f' (so are {len(more):,} more, to line {more[-1].line})' if more else ''}"
        for first, *more in alike.values()
    ][:FAULTS_SHOWN]
    if len(alike) > FAULTS_SHOWN:
        lines.append(f"and {len(alike) - FAULTS_SHOWN:,} more")
    kind = NotInThisVersion if all(fault.planned for fault in ordered) else UsageError
    raise kind("\n".join(lines))


def nearest(name: str, names: Iterable[str]) -> str:
    """Return the end of a message about a wrong name: `; did you mean 'x'?`, or the list of known names."""
    known = sorted(names)
    for close in close_names(name, known):
        return f"; did you mean {close!r}?"
    return f"; known: {', '.join(known)}" if known else ""


def quote(value: object, limit: int = 60) -> str:
    """Quote a value for a message: escaped by repr, cut at `limit`."""
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "…"
