"""The `served` reading of a tool call: what a server's parser makes of an answer and executes, its repairs among it.

A server's parser reads on where the model did not keep to its dialect: calls in code fences, a last tag that is not
closed, more keys than name and arguments, text around, values of another type than the schema's. Here is what vLLM
0.33.0's parsers of some dialects do with a finished answer, in our own words; each was held against the parser itself
(docs/scorers.md has the table). Where they read no call, there is none, and the text is an answer.

A dialect that is not here has no such reading: nothing is said of it, rather than guessed.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from qualgate.records import Case, Evalset, Score
from qualgate.scoring.outcome import cannot_say, quote, right, wrong
from qualgate.scoring.tools import strict
from qualgate.scoring.tools.dialects.call import MAX_CALLS, BadCall, Call, Tools
from qualgate.scoring.tools.dialects.registry import dialect
from qualgate.scoring.tools.dialects.tagged import properties, tool_names
from qualgate.scoring.tools.expected import wanted_calls
from qualgate.scoring.tools.served_values import coerced, finite, lenient

SERVED = "tool_call.served/3"
METRIC = "tool_call.served"
SERVER = "vLLM 0.33.0"
MOST_LOOKED_AT = 2**26  # characters times markers: more could take seconds

Reader = Callable[[str, Tools], Iterator[Call]]


@dataclass(frozen=True, slots=True)
class Parser:
    """One of a server's parsers, by its name there. markers: what its patterns look for again from each."""

    name: str
    markers: tuple[str, ...]
    read: Reader


def read_served(text: str, name: str, tools: Tools = ()) -> tuple[Call, ...]:
    """The calls that the server's parser of the dialect `name` executes; none where it takes the text for an answer.

    BadCall: `no_served_reading` for a dialect that is not read here, `too_much` for a text that is too long for it,
    `call_shape` for a call that is executed and has no object of arguments, `too_many_calls`.
    """
    if name not in PARSERS:
        raise BadCall("no_served_reading", f"what a server executes is known of {', '.join(PARSERS)}, not of {name}")
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


def _object(name: str, arguments: Any) -> Call:
    if not isinstance(arguments, dict):
        raise BadCall("call_shape", f"{SERVER} executes a call without an object of arguments: {quote(arguments)}")
    if not finite(arguments):
        raise BadCall("call_shape", f"{SERVER} executes arguments that are no JSON: {quote(arguments)}")
    return Call(name, arguments)


def _json_between(open: str, close: str) -> Reader:
    """Objects between tags, of which the last may be open; if one is no JSON or lacks a key, no call is read at all."""
    block = re.compile(f"{re.escape(open)}(.*?){re.escape(close)}|{re.escape(open)}(.*)", re.DOTALL)

    def read(text: str, tools: Tools) -> Iterator[Call]:
        found = []
        for closed, rest in block.findall(text):
            try:
                value = lenient(closed or rest)
                found.append((value["name"], value["arguments"]))
            except (ValueError, TypeError, KeyError, IndexError):
                return
        if not all(isinstance(name, str) for name, _ in found):
            return
        for name, arguments in found:
            yield _object(name, arguments)

    return read


def _functions(value_of: Callable[[str], str]) -> Reader:
    """Qwen's `<function=…>`, wherever it stands; an argument ends where the next begins. value_of: its text's value."""
    head = re.compile(r"(.*?)(>|</function>|\Z)", re.DOTALL)
    pair = re.compile(r"<\s*parameter\s*=\s*([^>]*)>(.*?)(?:<\s*/\s*parameter\s*>|(?=<\s*parameter\s*=))", re.DOTALL)

    def read(text: str, tools: Tools) -> Iterator[Call]:
        at = 0
        while (at := text.find("<function=", at)) >= 0:
            begin = head.match(text, at + len("<function="))
            assert begin is not None, "a name may be empty"
            name, at = begin[1].strip(), begin.end()
            end = text.find("</function>", at) if begin[2] == ">" else at
            body = text[at : end if end >= 0 else len(text)]
            given = {key: value_of(value) for key, value in pair.findall(body)}
            if name:
                yield _object(name, coerced(given, properties(tools, name)))
            at = end if end >= 0 else len(text)

    return read


def _unwrapped(value: str) -> str:
    return value[value.startswith("\n") :].removesuffix("\n")


def _dsml(frame: str, space: str = "", begins: tuple[str, ...] = ()) -> Reader:
    """DSML's invocations, inside of a frame or not; what does not say whether it is text is JSON if it can be.

    begins: frames without which no invocation in a thought is called; () where the parser knows no thoughts.
    """
    tag, end = f"<｜DSML｜{space}", f"</｜DSML｜{space}"
    block = re.compile(
        rf'{tag}invoke name="(.*?)(?:">(.*?)(?:{end}invoke>|{end}{frame}>|\Z)|\Z)', re.DOTALL
    )  # a name that the text ends in is called, too
    pair = re.compile(
        rf'{tag}parameter\s+name="([^"]+)"(?:\s+string="([^"]*)")?\s*>(.*?)(?:{end}parameter>|(?={tag}parameter\s+name=))',
        re.DOTALL,
    )

    def value(said: str, text: str) -> Any:
        try:
            return text if said == "true" else lenient(text)
        except ValueError:
            return text

    frames = "|".join(f"{tag}{one}>" for one in begins)
    mark = re.compile(rf'(?P<opens><think>)|(?P<closes></think>)|(?P<frame>{frames})|{tag}invoke name="')

    def first(text: str) -> int:
        """Where the first call or frame is that a thought does not hide."""
        thinking = False
        for one in mark.finditer(text):
            if one["opens"] or one["closes"]:
                thinking = one["opens"] is not None
            elif one["frame"] or not thinking:
                return one.start()
        return len(text)

    def read(text: str, tools: Tools) -> Iterator[Call]:
        for name, body in block.findall(text, first(text) if begins else 0):
            given = {key: value(said, inner) for key, said, inner in pair.findall(body)}
            known = properties(tools, name)
            if len(given) == 1 and known:
                given = _without_wrapper(given, frozenset(known))
            if name.strip():
                yield _object(name.strip(), coerced(given, properties(tools, name.strip())))

    return read


def _without_wrapper(given: dict[str, Any], known: frozenset[str]) -> dict[str, Any]:
    ((key, inner),) = given.items()
    if key not in ("arguments", "input") or key in known:
        return given
    if isinstance(inner, str):
        try:
            inner = lenient(inner)
        except ValueError:
            return given
    return inner if isinstance(inner, dict) and inner.keys() <= known else given


def _pairs(text: str, tools: Tools) -> Iterator[Call]:
    """GLM's pairs of keys and values; only of tools that are offered."""
    offered = tool_names(tools)
    for block in re.findall(r"<tool_call>(.*?)(?:</tool_call>|\Z)", text, re.DOTALL):
        name, _, _ = block.partition("<arg_key>")
        pairs = re.findall(r"<arg_key>(.*?)</arg_key>\s*<arg_value>(.*?)</arg_value>", block, re.DOTALL)
        if (name := name.strip()) and (not offered or name in offered):
            yield _object(name, coerced({key.strip(): value for key, value in pairs}, properties(tools, name)))


_QWEN = Parser("qwen3_coder", ("parameter",), _functions(_unwrapped))
_HERMES = Parser("hermes", (), _json_between("<tool_call>", "</tool_call>"))
_GLM = Parser("glm47", ("<arg_key>", "<arg_value>"), _pairs)
PARSERS = {
    "hermes": _HERMES,
    "qwen25": _HERMES,
    "longcat": Parser("longcat", (), _json_between("<longcat_tool_call>", "</longcat_tool_call>")),
    "qwen3_coder": _QWEN,
    "qwen3_xml": replace(_QWEN, name="qwen3_xml"),
    "step3p5": replace(_QWEN, name="step3p5"),
    "step5": replace(_QWEN, name="step5"),
    "mimo": replace(_QWEN, name="mimo", read=_functions(str)),
    "seed_oss": replace(_QWEN, name="seed_oss"),
    "glm45": replace(_GLM, name="glm45"),
    "glm47": _GLM,
    "ling3": replace(_GLM, name="ling3"),
    "deepseek_v32": Parser("deepseek_v32", ("｜DSML｜",), _dsml("function_calls")),
    "deepseek_v4": Parser("deepseek_v4", ("｜DSML｜",), _dsml("tool_calls", "", ("tool_calls", "toolcalls", "tool"))),
    "deepseek_v41": Parser("deepseek_v41", ("｜DSML｜",), _dsml("calls", " ", ("calls",))),
}
"""By dialect: the parser of `SERVER` whose reading is known."""
