"""Dialects by name: those that ship, and those of other distributions.

A distribution adds one with an entry point in the group `qualgate.dialects`, whose name is the dialect's and whose
object is a `Dialect`:

    [project.entry-points."qualgate.dialects"]
    acme = "acme_dialect:ACME"

A shipped name cannot be taken, nor one that another distribution took: scores must not depend on what is installed.
"""

from __future__ import annotations

from functools import cache
from importlib.metadata import EntryPoint

from qualgate import plugins
from qualgate.errors import UsageError, close_names
from qualgate.scoring.tools.dialects.shipped import SHIPPED
from qualgate.scoring.tools.dialects.stream import Dialect

GROUP = "qualgate.dialects"
AUTO = "auto"  # no dialect: whichever reads the answer, hermes first


def names() -> tuple[str, ...]:
    """Return every name `dialect` knows: the shipped ones in order of detection, then the others. Loads no plug-in."""
    return (*SHIPPED, *sorted(_plugins()))


@cache
def dialect(name: str) -> Dialect:
    """Return the dialect of that name; UsageError if it does not exist or its distribution is broken."""
    if name in SHIPPED:
        return SHIPPED[name]
    others_by_name = _plugins()
    if name in others_by_name:
        return plugins.load(others_by_name[name], Dialect)
    near = close_names(name, names())
    hint = f"; did you mean {near[0]}?" if near else f"; there are {', '.join(names())}"
    raise UsageError(f"no tool-call dialect is called {name!r}{hint}")


@cache
def _plugins() -> dict[str, EntryPoint]:
    return plugins.offered(GROUP, SHIPPED)
