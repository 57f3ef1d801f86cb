"""Load additions of other installed packages by entry point, only when they are requested.

A plug-in cannot take a shipped name nor another package's: verdicts must not depend on what is installed.
"""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from qualgate.errors import UsageError
from qualgate.text.escaping import visible_line

Kind = TypeVar("Kind")


def offered(group: str, shipped: Collection[str]) -> dict[str, EntryPoint]:
    """Entry points of `group` by name. UsageError for a name that is shipped, or that two packages offer."""
    entries: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        if entry.name in shipped:
            raise UsageError(
                f"{_package(entry)} offers {entry.name!r:.60} as {group}, and what is shipped under that name cannot "
                "be replaced. Uninstall the package, or have it choose another name."
            )
        if (earlier := entries.setdefault(entry.name, entry)) is not entry:
            raise UsageError(
                f"{_package(earlier)} and {_package(entry)} both offer {entry.name!r:.60} as {group}; uninstall one."
            )
    return entries


def load(entry: EntryPoint, kind: type[Kind]) -> Kind:
    """Load the object that `entry` names. UsageError, naming the package, if it is not of this kind, or its own `name`
    differs."""
    where = f"{_package(entry)}, which offers {entry.name!r:.60} as {entry.group}, cannot be used: {entry.value}"
    try:
        loaded = entry.load()
    except Exception as error:  # whatever their module raises
        reason = visible_line(str(error))[:200]
        raise UsageError(f"{where} raises {type(error).__name__}: {reason}. Update or uninstall it.") from error
    if not isinstance(loaded, kind):
        raise UsageError(f"{where} is a {type(loaded).__name__}, not a {kind.__module__}.{kind.__name__}")
    if (name := getattr(loaded, "name", entry.name)) != entry.name:
        raise UsageError(f"{where} is a {kind.__name__} called {name!r:.60}; both names must be the same")
    return loaded


def _package(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name} {entry.dist.version}" if entry.dist else f"the module {entry.module}"
