"""The `served` reading of a tool call: what a server's parser makes of an answer and executes, its repairs among it.

A server's parser reads on where the model did not keep to its dialect: calls in code fences, a last tag that is not
closed, more keys than name and arguments, text around, values of another type than the schema's. Here is what vLLM
0.33.0's parsers do with a finished answer, in our own words; each was held against the parser itself
(docs/dialects.md counts them). Where they read no call, there is none, and the text is an answer.

A dialect that is not here has no such reading: nothing is said of it but why, rather than guessed.
"""

from __future__ import annotations

import json
from dataclasses import replace

from qualgate.records import Case, Evalset, Score
from qualgate.scoring.outcome import cannot_say, quote, right, wrong
from qualgate.scoring.tools import strict
from qualgate.scoring.tools.dialects.call import MAX_CALLS, BadCall, Call, Tools
from qualgate.scoring.tools.dialects.registry import dialect
from qualgate.scoring.tools.expected import wanted_calls
from qualgate.scoring.tools.served_parsers import PARSERS, UNREAD
from qualgate.scoring.tools.served_values import SERVER

SERVED = "tool_call.served/4"
METRIC = "tool_call.served"
_OTHER = "another distribution's, whose parser nobody has read"
MOST_LOOKED_AT = 2**26  # characters times markers: more could take seconds


def read_served(text: str, name: str, tools: Tools = ()) -> tuple[Call, ...]:
    """The calls that the server's parser of the dialect `name` executes; none where it takes the text for an answer.

    BadCall: `no_served_reading` for a dialect that is not read here, `too_much` for a text that is too long for it,
    `call_shape` for a call that is executed and has no object of arguments, `too_many_calls`.
    """
    if name not in PARSERS:
        raise BadCall("no_served_reading", f"what a server executes is not known of {name}: {UNREAD.get(name, _OTHER)}")
    parser = PARSERS[name]
    marks = sum(map(text.count, parser.markers))
    if (marks + 1) * len(text) > MOST_LOOKED_AT:
        fault = "too_many_calls" if marks > 2 * MAX_CALLS else "too_much"  # a loop is the model's; two marks: a call
        raise BadCall(fault, f"{len(text):,} characters with {marks:,} marks are too many")
    calls = tuple(parser.read(text, tools))
    if len(calls) > MAX_CALLS:
        raise BadCall("too_many_calls", f"more than {MAX_CALLS} calls")
    return calls


def score_served(case: Case, evalset: Evalset, text: str, written_in: str | None = None) -> dict[str, Score]:
    """Whether what the server executes is right: `tool_call.correct` of the served reading. The reason of a right
    answer that the strict reading refuses says what the server's parser forgave. Null where nothing is known of the
    dialect, or none is declared."""
    name, tools = strict.dialect_of(case.body, written_in), case.body["tools"]
    try:
        calls = read_served(text, name, tools)
    except BadCall as fault:
        if fault.error_type in ("no_served_reading", "too_much"):
            return {METRIC: cannot_say(METRIC, SERVED, fault.error_type, str(fault))}
        return {METRIC: wrong(METRIC, SERVED, fault.error_type, str(fault))}
    shown = json.dumps([{"name": call.name, "arguments": call.arguments} for call in calls], ensure_ascii=False)
    judged = strict.judge(tools, wanted_calls(case.body), calls)
    holds = judged.flags["tool_call.correct"]
    if holds is None:
        return {METRIC: cannot_say(METRIC, SERVED, judged.error_type, judged.reason)}
    if not holds:
        return {METRIC: wrong(METRIC, SERVED, judged.error_type, judged.reason, shown)}
    return {METRIC: replace(right(METRIC, SERVED, shown), reason=_forgiven(text, name, tools, calls))}


def _forgiven(text: str, name: str, tools: Tools, calls: tuple[Call, ...]) -> str | None:
    try:
        said = dialect(name).parse(text, tools)
    except BadCall as fault:
        return f"{SERVER} forgave {fault.error_type}: {quote(str(fault), 200)}"
    return None if said == calls else f"{SERVER} forgave: strictly, {len(said)} such calls are read"
