"""The `served` reading of a tool call: the calls that a server executes, with its parser's repairs.

They come from the server: for a served arm from the `tool_calls` of its replies; for texts from its own tool parser,
which a case names by `served_by` and which runs in a sandbox (`qualgate.sandbox.parsers`). Otherwise they are unknown.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from os.path import abspath, expanduser
from typing import Any

from qualgate.errors import UsageError
from qualgate.records import Calls, Case, Evalset, Score
from qualgate.sandbox.parsers import NoParsers, Unread, parsers_of
from qualgate.scoring.outcome import cannot_say, quote, wrong
from qualgate.scoring.scorer import Scorer, in_dialect_first
from qualgate.scoring.tools import strict
from qualgate.scoring.tools.case_faults import SERVED_BY, served_faults, tool_faults
from qualgate.scoring.tools.dialects.call import MAX_CALLS, BadCall, Call, Tools
from qualgate.scoring.tools.dialects.registry import AUTO, dialect
from qualgate.scoring.tools.expected import wanted_calls

SERVED = "tool_call.served/5"
METRIC = "tool_call.served"
BY_ITSELF = f"{SERVED} its server"  # the scorer of a served arm's own calls
UNKNOWN = "no `served_by` (of `score`: --served-by) says whose parser reads texts, and no server gave its calls"
# What a server calls its parser of a dialect, where that is not the dialect's name.
PARSERS: Mapping[str, Mapping[str, str]] = {
    "vllm": {
        "qwen25": "hermes", "granite_20b_fc": "granite-20b-fc", "hunyuan_v3": "hy_v3", "internlm2": "internlm",
        "phi4_mini": "phi4_mini_json", "mistral_v11": "mistral", "nemotron_v3": "qwen3_coder",
    },
    "sglang": {
        "deepseek_v3": "deepseekv3", "deepseek_v31": "deepseekv31", "deepseek_v32": "deepseekv32",
        "deepseek_v4": "deepseekv4", "deepseek_v41": "deepseekv41", "minimax_m2": "minimax-m2",
        "minimax_m3": "minimax-m3", "apertus": "apertus2509", "llama4_pythonic": "pythonic", "llama3_json": "llama3",
        "mistral_v11": "mistral", "hunyuan_v3": "hunyuan", "harmony": "gpt-oss",
    },
}  # fmt: skip
LACKS = {"mistral": "[ARGS]"}  # by dialect: a token that tells its tokenizer from a later one


def today(scorer: str, version: str) -> str:
    """Return `version` with the server that the stored `scorer` names."""
    read_by = scorer.partition(" ")[2]
    return f"{version} {read_by}" if version == SERVED and read_by and read_by != AUTO else version


def server_version(by: Mapping[str, str]) -> str:
    """The environment's server and its version, which its scores name. NoParsers where it cannot be used here."""
    return f"{by['engine']} {parsers_of(**by).version}"


def by_parser(scorer: Scorer, spec: str) -> Scorer:
    """Return `scorer` that reads texts of cases without a `served_by` by the parser that `spec` names, "ENGINE:PYTHON".
    UsageError if that scorer reads none, or the environment cannot be used here."""
    engine, _, python = spec.partition(":")
    by = {"engine": engine, "python": abspath(expanduser(python)) if python else ""}
    if scorer.mode != "served" or scorer.written_in is None:
        raise UsageError(f"--served-by {spec}: the scorer {scorer.name} ({scorer.mode}) asks no server. Leave it out.")
    if faults := [*served_faults({SERVED_BY: by})]:
        raise UsageError(f"--served-by {spec}: it is vllm:PYTHON or sglang:PYTHON; {faults[0]}.")
    try:
        server_version(by)
    except NoParsers as error:
        raise UsageError(f"--served-by {spec}: {error}.") from None

    def reading(function: Any) -> Any:
        return lambda case, *rest: function(replace(case, body={SERVED_BY: by, **case.body}), *rest)

    written_in = scorer.written_in
    return replace(scorer, function=reading(scorer.function), written_in=lambda name: reading(written_in(name)))


def read_served(text: str, name: str, tools: Tools, by: Mapping[str, str]) -> tuple[Call, ...]:
    """Return the calls that the server executes of a text in the dialect `name`; () if it takes the text as an answer.

    BadCall for a call whose arguments are no object, and for too many calls. Unread if the parser fails on the text,
    NoParsers where there is none.
    """
    parser = PARSERS[by["engine"]].get(name, name)
    offered = [tool if "function" in tool else {"type": "function", "function": tool} for tool in tools]
    calls = parsers_of(**by).read(parser, text, offered, LACKS.get(name, ""))
    return _as_calls(calls)


def _as_calls(calls: Calls) -> tuple[Call, ...]:
    if len(calls) > MAX_CALLS:
        raise BadCall("too_many_calls", f"more than {MAX_CALLS} calls")
    return strict.read_calls(as_given(calls))


def as_given(calls: Calls) -> list[dict[str, Any]]:
    """Return names and arguments as in the `tool_calls` of a server's reply."""
    return [{"type": "function", "function": {"name": name, "arguments": given}} for name, given in calls]


def score_served(case: Case, evalset: Evalset, text: str, written_in: str | None = None) -> dict[str, Score]:
    """Score the calls that the case's server executes of a text: `tool_call.correct` of the served reading. The reason
    of a right answer that the strict reading refuses says what the server's parser forgave; the row's scorer names the
    server. Null where no server is named, its parser fails, or no dialect is declared."""
    faults = [*served_faults(case.body)] if SERVED_BY in case.body else [UNKNOWN]
    if faults:
        why = faults[0]
        return {METRIC: cannot_say(METRIC, SERVED, "no_served_reading", why)}
    by, name, tools = case.body[SERVED_BY], strict.dialect_of(case.body, written_in), case.body["tools"]
    try:
        version = server_version(by)
    except NoParsers as error:
        return {METRIC: cannot_say(METRIC, SERVED, "no_parser", str(error))}
    scorer = f"{SERVED} {version}"
    if name == AUTO:
        why = f"no dialect is declared, and {version} reads one that it is told"
        return {METRIC: cannot_say(METRIC, scorer, "no_served_reading", why)}
    try:
        calls = read_served(text, name, tools, by)
    except Unread as error:
        return {METRIC: cannot_say(METRIC, scorer, "parser_failed", f"{version}, {name}: {error}")}
    except NoParsers as error:
        return {METRIC: cannot_say(METRIC, scorer, "no_parser", str(error))}
    except BadCall as fault:
        return {METRIC: wrong(METRIC, scorer, fault.error_type, str(fault))}
    score = _judged(case, calls, scorer)
    if score.verdict:
        score = replace(score, reason=_forgiven(text, name, tools, calls, version))
    return {METRIC: score}


def score_by_itself(case: Case, evalset: Evalset, calls: Any) -> dict[str, Score]:
    """Score the calls that a server gave in its reply, in any shape that the strict reading takes."""
    try:
        return {METRIC: _judged(case, strict.read_calls(calls), BY_ITSELF)}
    except BadCall as fault:
        return {METRIC: wrong(METRIC, BY_ITSELF, fault.error_type, str(fault))}


def _judged(case: Case, calls: tuple[Call, ...], scorer: str) -> Score:
    """Return the score of the calls that a server's parser read. scorer: with the server's version."""
    calls_json = json.dumps([{"name": call.name, "arguments": call.arguments} for call in calls], ensure_ascii=False)
    judged = strict.judge(case.body["tools"], wanted_calls(case.body), calls)
    (score,) = strict.flag_scores(judged, calls_json, scorer, strict.FLAGS[-1:]).values()
    return replace(score, metric=METRIC)


def _forgiven(text: str, name: str, tools: Tools, calls: tuple[Call, ...], server: str) -> str:
    try:
        strictly = dialect(name).parse(text, tools)
    except BadCall as fault:
        return f"{server} forgave {fault.error_type}: {quote(str(fault), 200)}"
    return "" if strictly == calls else f"{server} forgave: strictly, {len(strictly)} such calls are read"


SCORERS = (
    Scorer(
        name="tool_call",
        mode="served",
        version=SERVED,
        metrics=(METRIC,),
        function=score_served,
        faults=tool_faults,
        decoded=score_by_itself,
        written_in=in_dialect_first(score_served),
    ),
)
