"""Decide who is at fault when no call can be read: the model, or the parser.

A server with the wrong parser scores zero on every tool call and well on everything else. So before a model counts as
wrong, its raw answer is read in every dialect.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from qualgate.scoring.tools.dialects.call import BadCall, Call, Tools
from qualgate.scoring.tools.dialects.detect import readers
from qualgate.scoring.tools.dialects.registry import dialect, names
from qualgate.scoring.tools.dialects.tagged import tool_names


@dataclass(frozen=True, slots=True, kw_only=True)
class Blame:
    """The calls read from one answer, and whose fault it is if there are none.

    culprit: none: the declared dialect reads calls, or a plain answer in which no dialect finds any; parser: another
             dialect reads calls of tools that were offered; model: no dialect does, and the answer means to call
    readers: the other dialects that read it, the likeliest first
    tried:   all that were tried
    calls:   what the declared dialect reads, or else the first reader
    """

    culprit: Literal["none", "parser", "model"]
    text: str
    declared: str
    error_type: str
    reason: str
    readers: tuple[str, ...]
    tried: tuple[str, ...]
    calls: tuple[Call, ...]


def blame(text: str, declared_dialect: str, tools: Tools = ()) -> Blame:
    """Return who is at fault for what `declared_dialect` makes of `text`. UsageError for an unknown dialect."""
    declared, error_type, reason, calls = dialect(declared_dialect), "", "", ()
    try:
        calls = declared.parse(text, tools)
    except BadCall as error:
        error_type, reason = error.error_type, str(error)
    tried, other_readers = (declared_dialect,), ()
    if not calls:
        tried = names()
        other_readers = tuple(
            name for name in readers(text, tools) if name != declared_dialect and _offered(text, name, tools)
        )
    if other_readers:
        calls = dialect(other_readers[0]).parse(text, tools)
        if not error_type:
            error_type, reason = "no_call", f"{declared_dialect} reads no call, {other_readers[0]} reads {len(calls)}"
    return Blame(
        culprit="parser" if other_readers else "model" if error_type else "none",
        text=text,
        declared=declared_dialect,
        error_type=error_type,
        reason=reason,
        readers=other_readers,
        tried=tried,
        calls=calls,
    )


def _offered(text: str, name: str, tools: Tools) -> bool:
    """Return whether another dialect reads calls of offered tools; other calls prove nothing."""
    offered = tool_names(tools)
    return not offered or all(call.name in offered for call in dialect(name).parse(text, tools))
