"""Advice for the gate file when a server refuses a parameter that every request has."""

from __future__ import annotations

import re
from collections.abc import Mapping

from qualgate.records.served import OMIT

CURES = {
    "max_tokens": "max_completion_tokens", "stream_options": OMIT, "temperature": OMIT, "seed": OMIT, "top_p": OMIT,
    "logprobs": OMIT, "stop": OMIT,
}  # fmt: skip
_UNKNOWN = re.compile(
    r"(not|only \S+ (value )?(is|are)) (currently )?(supported|permitted|allowed|available)|does(n't| not) support|"
    r"unsupported|unrecogni[sz]ed|unknown|unexpected|forbidden|deprecated|no such|"
    r"invalid (parameter|argument|field|temperature)",
    re.IGNORECASE,
)
_STREAM = re.compile(r"\bstream(ing)?\b", re.IGNORECASE)


def parameter_cure(words: str, parameters: Mapping[str, str]) -> str:
    """Return the line that omits or renames a refused parameter; "" for other refusals. parameters: the arm's own."""
    if not _UNKNOWN.search(words):
        return ""
    positions = {
        key: match.start() for key in (*CURES, *parameters.values()) if (match := re.search(rf"\b{key}\b", words))
    }
    if not positions:
        return ". If it takes no streams: `stream: false` beside `model`" if _STREAM.search(words) else ""
    name = min(positions, key=positions.__getitem__)
    if name in parameters.values():
        own_name = next(name_here for name_here, sent_name in parameters.items() if sent_name == name)
        return f". `parameters: {{{own_name}: {name}}}` names what it does not know: mend the name, or write {OMIT}"
    return f". If it takes no `{name}`: `parameters: {{{name}: {CURES[name]}}}` beside `model`"
