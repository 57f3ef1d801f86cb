"""Additions of other installed packages, by entry point: nothing of theirs is imported before it is asked for.

A shipped name cannot be taken, nor one that another package took: verdicts must not depend on what is installed.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from qualgate.errors import UsageError
from qualgate.escaping import visible_line

Kind = TypeVar("Kind")


def offered(group: str, shipped: Collection[str]) -> dict[str, EntryPoint]:
    """Entry points of `group` by name. UsageError for a name that is shipped, or that two packages offer."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        if entry.name in shipped:
            raise UsageError(
                f"{_package(entry)} offers {entry.name!r:.60} as {group}, and what is shipped under that name cannot "
                "be replaced. Uninstall the package, or have it choose another name."
            )
        if (other := found.setdefault(entry.name, entry)) is not entry:
            raise UsageError(
                f"{_package(other)} and {_package(entry)} both offer {entry.name!r:.60} as {group}; uninstall one."
            )
    return found


def load(entry: EntryPoint, kind: type[Kind]) -> Kind:
    """The object that `entry` names. UsageError, naming the package, when there is none of this kind, or one whose
    own `name` is another."""
    where = f"{_package(entry)}, which offers {entry.name!r:.60} as {entry.group}, cannot be used: {entry.value}"
    try:
        found = entry.load()
    except Exception as error:  # whatever their module raises
        reason = visible_line(str(error))[:200]
        raise UsageError(f"{where} raises {type(error).__name__}: {reason}. Update or uninstall it.") from error
    if not isinstance(found, kind):
        raise UsageError(f"{where} is a {type(found).__name__}, not a {kind.__module__}.{kind.__name__}")
    if (name := getattr(found, "name", entry.name)) != entry.name:
        raise UsageError(f"{where} is a {kind.__name__} called {name!r:.60}; both names must be the same")
    return found


def _package(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name} {entry.dist.version}" if entry.dist else f"the module {entry.module}"
