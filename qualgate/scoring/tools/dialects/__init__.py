"""How models write tool calls as text: one dialect a family, all read by one scanner.

`registry.dialect(name).parse(text, tools)` gives the calls of an answer, `.stream(tools)` reads it as it comes,
`.serialise(calls)` writes it; `detect` names the dialect of a template or an answer, `blame` says whether model or
parser is at fault. What a failure is called: `call`. What each dialect was checked against: `shipped`.
"""

from __future__ import annotations

from qualgate.scoring.tools.dialects.call import MAX_CALLS, BadCall, Call, read_json
from qualgate.scoring.tools.dialects.shipped import HERMES
from qualgate.scoring.tools.dialects.stream import Dialect, Stream

__all__ = ["MAX_CALLS", "BadCall", "Call", "Dialect", "Stream", "hermes", "read_json"]

hermes = HERMES.parse
