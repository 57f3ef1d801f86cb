"""What other installed packages add, found by entry point: nothing of theirs is imported before it is asked for."""

from __future__ import annotations

from collections.abc import Collection
from importlib.metadata import EntryPoint, entry_points
from typing import TypeVar

from qualgate.errors import UsageError
from qualgate.scoring.outcome import quote

Kind = TypeVar("Kind")


def offered(group: str, shipped: Collection[str]) -> dict[str, EntryPoint]:
    """Entry points of `group` by name. UsageError for a name that is shipped, or that two packages offer."""
    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        if entry.name in shipped:
            raise UsageError(
                f"{_package(entry)} offers {quote(entry.name)} as {group}, and what is shipped under that name cannot "
                "be replaced. Uninstall the package, or have it choose another name."
            )
        if (other := found.setdefault(entry.name, entry)) is not entry:
            raise UsageError(
                f"{_package(other)} and {_package(entry)} both offer {quote(entry.name)} as {group}; uninstall one."
            )
    return found


def load(entry: EntryPoint, kind: type[Kind]) -> Kind:
    """The object that `entry` names. UsageError, naming the package, when there is none of this kind."""
    where = f"{_package(entry)}, which offers {quote(entry.name)} as {entry.group}"
    try:
        found = entry.load()
    except Exception as error:  # whatever their module raises
        reason = quote(str(error), 200)
        raise UsageError(f"{where}, cannot be used: {entry.value} raises {type(error).__name__}: {reason}") from error
    if not isinstance(found, kind):
        raise UsageError(f"{where}, cannot be used: {entry.value} is a {type(found).__name__}, not a {kind.__name__}")
    return found


def _package(entry: EntryPoint) -> str:
    return f"the package {entry.dist.name} {entry.dist.version}" if entry.dist else f"the module {entry.module}"
