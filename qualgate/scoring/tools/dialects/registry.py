"""Dialects by name: those that ship, and those of other distributions.

A distribution adds one with an entry point in the group `qualgate.dialects`, whose name is the dialect's and whose
object is a `Dialect`:

    [project.entry-points."qualgate.dialects"]
    acme = "acme_dialect:ACME"

A shipped name cannot be taken, nor one that another distribution took: scores must not depend on what is installed.
"""

from __future__ import annotations

from difflib import get_close_matches
from functools import cache
from importlib.metadata import EntryPoint, entry_points

from qualgate.errors import UsageError
from qualgate.scoring.tools.dialects.shipped import SHIPPED
from qualgate.scoring.tools.dialects.stream import Dialect

GROUP = "qualgate.dialects"


def names() -> tuple[str, ...]:
    """Every name `dialect` knows: the shipped ones in order of detection, then the others. Loads no plug-in."""
    return (*SHIPPED, *sorted(_plugins()))


@cache
def dialect(name: str) -> Dialect:
    """The dialect of that name; UsageError when there is none, or its distribution is broken."""
    if name in SHIPPED:
        return SHIPPED[name]
    plugins = _plugins()
    if name in plugins:
        return _loaded(plugins[name])
    near = get_close_matches(name, names(), n=1)
    hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names())}"
    raise UsageError(f"no tool-call dialect is called {name!r}{hint}")


@cache
def _plugins() -> dict[str, EntryPoint]:
    found: dict[str, EntryPoint] = {}
    for point in entry_points(group=GROUP):
        if point.name in SHIPPED:
            raise UsageError(f"{_distribution(point)} declares the dialect {point.name!r}, which qualgate ships")
        if point.name in found:
            both = f"{_distribution(found[point.name])} and {_distribution(point)}"
            raise UsageError(f"{both} both declare the dialect {point.name!r}; uninstall one of them")
        found[point.name] = point
    return found


def _loaded(point: EntryPoint) -> Dialect:
    try:
        value = point.load()
    except Exception as error:
        raise UsageError(
            f"{_distribution(point)} declares the dialect {point.name!r}, but {point.value} cannot be loaded "
            f"({type(error).__name__}: {error}); update or uninstall that distribution"
        ) from error
    if not isinstance(value, Dialect) or value.name != point.name:
        what = f"a dialect called {value.name!r}" if isinstance(value, Dialect) else f"a {type(value).__name__}"
        raise UsageError(
            f"{_distribution(point)} declares the dialect {point.name!r}, but {point.value} is {what}; "
            "it must be a qualgate.scoring.tools.dialects.Dialect of that name"
        )
    return value


def _distribution(point: EntryPoint) -> str:
    return f"the distribution {point.dist.name} {point.dist.version}" if point.dist else "an unknown distribution"
