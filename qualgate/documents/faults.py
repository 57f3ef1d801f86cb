"""Faults of a file that a person wrote: each with its file and line, all of them said at once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from qualgate.errors import NotInThisVersion, UsageError, close_names

FAULTS_SHOWN = 20


@dataclass(frozen=True, slots=True, order=True)
class Fault:
    """One thing wrong in a user's file. `planned`: the design has it, this version does not."""

    path: Path
    line: int
    message: str
    planned: bool = False

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.message}"


def refuse(faults: Iterable[Fault]) -> NoReturn:
    """Raise UsageError with every fault on a line of its own, 20 at most; what is wrong alike on many lines once."""
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
    """`; did you mean 'x'?` or the list of right names: the end of a message about a wrong one."""
    known = sorted(names)
    for close in close_names(name, known):
        return f"; did you mean {close!r}?"
    return f"; known: {', '.join(known)}" if known else ""


def quote(value: object, limit: int = 60) -> str:
    """`value` for a message: escaped by repr, cut at `limit`."""
    text = repr(value)
    return text if len(text) <= limit else text[:limit] + "…"
