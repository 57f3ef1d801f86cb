"""Dialects in which models write tool calls as text, one per family, all read by one scanner.

`registry.dialect(name).parse(text, tools)` gives the calls of an answer, `.stream(tools)` reads it as it comes,
`.serialise(calls)` writes it; `detect` names the dialect of a template, and those that read an answer. `call` lists the
words for failures, `shipped` the sources that each dialect was checked against.
"""

from __future__ import annotations

from qualgate.scoring.tools.dialects.call import MAX_CALLS, BadCall, Call, read_json
from qualgate.scoring.tools.dialects.shipped import HERMES
from qualgate.scoring.tools.dialects.stream import Dialect, Stream

__all__ = ["MAX_CALLS", "BadCall", "Call", "Dialect", "Stream", "hermes", "read_json"]

hermes = HERMES.parse
