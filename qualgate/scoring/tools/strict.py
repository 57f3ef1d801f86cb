"""Tool calls judged by JSON Schema and by value, as nested flags: parses → valid → function → correct.

A flag is true only when those before it are. Parallel calls have no order: the calls made and the calls expected are
compared as multisets. Arguments are compared as JSON values, nothing folded: 1 is 1.0, true is not 1, "5" is not 5.
`expected_calls: []` means that no call may be made: a plain answer is right. Where a call is expected, an answer
without one parses and no more: a variant that forgot how to open a call must not look valid.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from qualgate.records import Case, Evalset, Score
from qualgate.scoring.json_value import identity
from qualgate.scoring.outcome import cannot_say, quote, right, wrong
from qualgate.scoring.schema import CannotValidate, first_error
from qualgate.scoring.tools.dialects import BadCall, Call, hermes

SCORER = "tool_call/2"
FLAGS = ("tool_call.parses", "tool_call.valid", "tool_call.function", "tool_call.correct")


def parameters(tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Schema of the arguments, by tool name. A tool is `{name, parameters}`, or that under `function`."""
    functions = [tool.get("function", tool) for tool in tools]
    return {function["name"]: function.get("parameters", {}) for function in functions}


def score_tool_call(case: Case, evalset: Evalset, text: str) -> dict[str, Score]:
    """All four flags."""
    try:
        calls = hermes(text)
    except BadCall as error:
        return _flags(0, error.error_type, str(error))
    return _judge(case, calls)


def score_decoded(case: Case, evalset: Evalset, calls: Any) -> dict[str, Score]:
    """All four flags of calls that someone else decoded: a list of `{"name", "arguments"}` or `{NAME: arguments}`."""
    if not isinstance(calls, list):
        return _flags(0, "call_shape", f"the calls are {quote(calls)}, not a list")
    try:
        return _judge(case, tuple(_call(number, call) for number, call in enumerate(calls, start=1)))
    except BadCall as error:
        return _flags(0, error.error_type, str(error))


def _call(number: int, value: Any) -> Call:
    match value:
        case {"name": str() as name, "arguments": dict() as arguments} if len(value) == 2:
            return Call(name, arguments)
        case dict() if len(value) == 1 and isinstance(next(iter(value.values())), dict):
            return Call(*next(iter(value.items())))
        case _:
            raise BadCall("call_shape", f"call {number} is {quote(value)}, not a name and an arguments object")


def _judge(case: Case, calls: tuple[Call, ...]) -> dict[str, Score]:
    if not calls and case.body["expected_calls"]:
        return _flags(1, "no_call", "no call is made", "[]")
    shown = json.dumps([{"name": call.name, "arguments": call.arguments} for call in calls], ensure_ascii=False)
    try:
        if fault := _invalid(calls, parameters(case.body["tools"])):
            return _flags(1, *fault, shown)
    except CannotValidate as failure:
        parses, *others = FLAGS
        unknown = {flag: cannot_say(flag, SCORER, "schema_unusable", str(failure)) for flag in others}
        return {parses: right(parses, SCORER, shown), **unknown}
    expected = [Call(call["name"], call["arguments"]) for call in case.body["expected_calls"]]
    if fault := _other_functions(calls, expected):
        return _flags(2, *fault, shown)
    if fault := _other_arguments(calls, expected):
        return _flags(3, *fault, shown)
    return _flags(4, "", "", shown)


def _flags(passed: int, error_type: str, reason: str, shown: str | None = None) -> dict[str, Score]:
    return {
        flag: right(flag, SCORER, shown) if place < passed else wrong(flag, SCORER, error_type, reason, shown)
        for place, flag in enumerate(FLAGS)
    }


def _invalid(calls: tuple[Call, ...], schemas: dict[str, Any]) -> tuple[str, str] | None:
    for call in calls:
        if call.name not in schemas:
            return "unknown_tool", f"no tool is called {quote(call.name)}"
        if error := first_error(schemas[call.name], call.arguments):
            return "arguments", f"{call.name} {error}"
    return None


def _other_functions(calls: tuple[Call, ...], expected: list[Call]) -> tuple[str, str] | None:
    made, wanted = Counter(call.name for call in calls), Counter(call.name for call in expected)
    missing, extra = list((wanted - made).elements()), list((made - wanted).elements())
    if missing and extra:
        return "wrong_function", f"called {', '.join(extra)[:100]} instead of {', '.join(missing)[:100]}"
    if missing:
        return "missing_call", f"{', '.join(missing)[:100]} is not called"
    if extra:
        return "extra_call", f"{', '.join(extra)[:100]} is called beyond what was asked"
    return None


def _other_arguments(calls: tuple[Call, ...], expected: list[Call]) -> tuple[str, str] | None:
    """The functions agree, so equal multisets of calls are exactly a perfect matching."""
    wanted = Counter((call.name, identity(call.arguments)) for call in expected)
    for call in calls:
        key = (call.name, identity(call.arguments))
        if not wanted[key]:
            same_name = [other for other in expected if other.name == call.name]
            return "wrong_arguments", f"{call.name}: {_difference(call, same_name)}"
        wanted[key] -= 1
    return None


def _difference(call: Call, expected: list[Call]) -> str:
    if len(expected) > 1:
        return f"no expected call has the arguments {quote(call.arguments)}"
    wanted = expected[0].arguments
    for key in (*wanted, *call.arguments):
        if key not in call.arguments:
            return f"{quote(key)} is missing"
        if key not in wanted:
            return f"{quote(key)} is not expected"
        if identity(call.arguments[key]) != identity(wanted[key]):
            return f"{quote(key)} is {quote(call.arguments[key])}, expected {quote(wanted[key])}"
    return "other arguments"
