"""The `served` reading of a tool call: what a server's parser makes of an answer and executes, its repairs among it.

A server's parser reads on where the model did not keep to its dialect: calls in code fences, a last tag that is not
closed, more keys than name and arguments, text around, values of another type than the schema's. Here is what the
parsers of each of SERVERS do with a finished answer, in our own words; each was held against the parser itself
(docs/dialects.md counts them). Where they read no call, there is none, and the text is an answer.

Which server it is, a case says by `served_by`; of one that says nothing it is vLLM. A dialect that is not here has no
such reading: nothing is said of it, rather than guessed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from qualgate.records import Case, Evalset, Score
from qualgate.scoring.outcome import cannot_say, quote, right, wrong
from qualgate.scoring.tools import strict
from qualgate.scoring.tools.dialects.call import MAX_CALLS, BadCall, Call, Tools
from qualgate.scoring.tools.dialects.registry import dialect
from qualgate.scoring.tools.expected import wanted_calls
from qualgate.scoring.tools.served_parsers import PARSERS, UNREAD, Parser
from qualgate.scoring.tools.served_sglang import PARSERS as OF_SGLANG
from qualgate.scoring.tools.served_sglang_values import SERVER as SGLANG
from qualgate.scoring.tools.served_values import SERVER as VLLM

SERVED = "tool_call.served/4"
METRIC = "tool_call.served"
KEY = "served_by"  # of a case: a name in SERVERS
MOST_LOOKED_AT = 2**26  # characters times markers: more could take seconds


@dataclass(frozen=True, slots=True)
class Server:
    """A server whose parsers are known. name: with its version; parsers: by dialect; unread: of others, why not."""

    name: str
    parsers: Mapping[str, Parser]
    unread: Mapping[str, str] = field(default_factory=dict)


SERVERS = {"vllm": Server(VLLM, PARSERS, UNREAD), "sglang": Server(SGLANG, OF_SGLANG)}


def server_of(body: Mapping[str, Any]) -> Server:
    """Whose parser reads a case's answers. KeyError for one that is unknown."""
    return SERVERS[body.get(KEY, "vllm")]


def today(scorer: str, version: str) -> str:
    """What a stored `scorer` is called today, `version` being its own: by the server that it read as."""
    if version != SERVED or scorer == SERVED:
        return version
    name = next((one.name for one in SERVERS.values() if f" {one.name.split()[0]} " in scorer), VLLM)
    return f"{version} {name}"


def unread(name: str, server: Server) -> str:
    """Why nothing is known of the server's parser of the dialect `name`; "" where it is."""
    if name == strict.AUTO:
        return f"no dialect is declared, and {server.name} reads one that it is told"
    why = server.unread.get(name) or f"only of {', '.join(server.parsers)}"
    return "" if name in server.parsers else f"what {server.name} executes is not known of {name}: {why}"


def read_served(text: str, name: str, tools: Tools = (), server: Server = SERVERS["vllm"]) -> tuple[Call, ...]:
    """The calls that the server's parser of the dialect `name` executes; none where it takes the text for an answer.

    BadCall: `no_served_reading` for a dialect that is not read here, `too_much` for a text that is too long for it,
    `call_shape` for a call that is executed and has no object of arguments, `too_many_calls`.
    """
    if why := unread(name, server):
        raise BadCall("no_served_reading", why)
    parser = server.parsers[name]
    marks = sum(map(text.count, parser.markers))
    if (marks + 1) * len(text) > MOST_LOOKED_AT:
        fault = "too_many_calls" if marks > 2 * MAX_CALLS else "too_much"  # a loop is the model's; two marks: a call
        raise BadCall(fault, f"{len(text):,} characters with {marks:,} marks are too many")
    calls = tuple(parser.read(text, tools))
    if len(calls) > MAX_CALLS:
        raise BadCall("too_many_calls", f"more than {MAX_CALLS} calls")
    return calls


def score_served(case: Case, evalset: Evalset, text: str, written_in: str | None = None) -> dict[str, Score]:
    """Whether what the case's server executes is right: `tool_call.correct` of the served reading. The reason of a
    right answer that the strict reading refuses says what the server's parser forgave; the row's scorer names the
    server. Null where nothing is known of the server's parser of the dialect, or no dialect is declared."""
    name, tools = strict.dialect_of(case.body, written_in), case.body["tools"]
    try:
        server = server_of(case.body)
    except (KeyError, TypeError):
        said = f"what {quote(case.body[KEY])} executes is not known, only: {', '.join(SERVERS)}"
        return {METRIC: cannot_say(METRIC, SERVED, "no_served_reading", said)}
    version = f"{SERVED} {server.name}"
    try:
        calls = read_served(text, name, tools, server)
    except BadCall as fault:
        if fault.error_type in ("no_served_reading", "too_much"):
            return {METRIC: cannot_say(METRIC, version, fault.error_type, str(fault))}
        return {METRIC: wrong(METRIC, version, fault.error_type, str(fault))}
    shown = json.dumps([{"name": call.name, "arguments": call.arguments} for call in calls], ensure_ascii=False)
    judged = strict.judge(tools, wanted_calls(case.body), calls)
    holds = judged.flags["tool_call.correct"]
    if holds is None:
        return {METRIC: cannot_say(METRIC, version, judged.error_type, judged.reason)}
    if not holds:
        return {METRIC: wrong(METRIC, version, judged.error_type, judged.reason, shown)}
    return {METRIC: replace(right(METRIC, version, shown), reason=_forgiven(text, name, tools, calls, server.name))}


def _forgiven(text: str, name: str, tools: Tools, calls: tuple[Call, ...], server: str) -> str | None:
    try:
        said = dialect(name).parse(text, tools)
    except BadCall as fault:
        return f"{server} forgave {fault.error_type}: {quote(str(fault), 200)}"
    return None if said == calls else f"{server} forgave: strictly, {len(said)} such calls are read"
