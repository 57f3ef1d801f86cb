"""Tool calls judged by JSON Schema and by value, as nested flags:

parses → valid (schema) → function → required → types → correct (values)

A flag is true only when those before it are. Parallel calls have no order: each of the later flags asks whether every
call made can be given an expected call of its own (a maximum matching) that it agrees with so far. Values are compared
as JSON values, nothing folded: 1 is 1.0, true is not 1, "5" is not 5; a number with a fraction within a tolerance.
`expected_calls: []` means that no call may be made: a plain answer is right. Where a call is expected, an answer
without one parses and no more: a variant that forgot how to open a call must not look valid.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from qualgate.records import Case, Evalset, Score
from qualgate.scoring.outcome import cannot_say, quote, right, wrong
from qualgate.scoring.schema import CannotValidate, first_error, lint
from qualgate.scoring.tools.dialects import BadCall, Call, hermes
from qualgate.scoring.tools.expected import REL_TOL, Expected, as_schema, fits, read_expected, same_types
from qualgate.scoring.tools.matching import perfect

SCORER = "tool_call/3"
FLAGS = (
    "tool_call.parses",
    "tool_call.valid",
    "tool_call.function",
    "tool_call.required",
    "tool_call.types",
    "tool_call.correct",
)
MAX_MATCHED = 500  # calls that are matched; every pair of them is compared


@dataclass(frozen=True, slots=True)
class Judged:
    flags: dict[str, bool | None]  # by metric, in order; None: cannot be said
    error_type: str = ""  # why the first flag that is not true is not
    reason: str = ""


def parameters(tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Schema of the arguments, by tool name. A tool is `{name, parameters}`, or that under `function`.

    BFCL's documented types (dict, float, tuple, any …) are read as JSON Schema's.
    """
    functions = [tool.get("function", tool) for tool in tools]
    return {function["name"]: as_schema(function.get("parameters", {})) for function in functions}


def judge(
    tools: list[dict[str, Any]], expected_calls: Any, calls: tuple[Call, ...], rel_tol: float = REL_TOL
) -> Judged:
    """The flags of calls that were parsed. ValueError for expected calls of neither shape (see `expected`).

    rel_tol: of numbers with a fraction, relative; whole numbers are compared exactly.
    """
    expected = read_expected(expected_calls)
    if not calls and expected:
        return _judged(1, "no_call", "no call is made")
    try:
        if fault := _invalid(calls, parameters(tools)):
            return _judged(1, *fault)
    except CannotValidate as failure:
        return _unknown("schema_unusable", str(failure))
    if fault := _other_functions(calls, expected):
        return _judged(2, *fault)
    if len(calls) > MAX_MATCHED:
        return _unknown("too_many_calls", f"{len(calls)} calls were made as expected; {MAX_MATCHED} can be matched")
    agree = (_holds_required, _holds_types, lambda call, wanted: _holds_values(call, wanted, rel_tol))
    for passed, holds in enumerate(agree, start=3):
        if fault := _unmatched(calls, expected, holds):
            return _judged(passed, *fault)
    return _judged(len(FLAGS), "", "")


def score_tool_call(case: Case, evalset: Evalset, text: str) -> dict[str, Score]:
    """All six flags of an answer."""
    try:
        calls = hermes(text)
    except BadCall as error:
        return _scores(_judged(0, error.error_type, str(error)), None)
    return _score(case, calls)


def score_decoded(case: Case, evalset: Evalset, calls: Any) -> dict[str, Score]:
    """All six flags of calls that someone else decoded: a list of `{"name", "arguments"}` or `{NAME: arguments}`."""
    try:
        return _score(case, read_calls(calls))
    except BadCall as error:
        return _scores(_judged(0, error.error_type, str(error)), None)


def read_calls(values: Any) -> tuple[Call, ...]:
    """Decoded calls of either shape; BadCall for anything else."""
    if not isinstance(values, list):
        raise BadCall("call_shape", f"the calls are {quote(values)}, not a list")
    return tuple(_read(number, value) for number, value in enumerate(values, start=1))


def _read(number: int, value: Any) -> Call:
    match value:
        case {"name": str() as name, "arguments": dict() as arguments} if len(value) == 2:
            return Call(name, arguments)
        case dict() if len(value) == 1:
            ((name, arguments),) = value.items()
            if isinstance(name, str) and isinstance(arguments, dict):
                return Call(name, arguments)
    raise BadCall("call_shape", f"call {number} is {quote(value)}, not a name and an arguments object")


def _score(case: Case, calls: tuple[Call, ...]) -> dict[str, Score]:
    shown = json.dumps([{"name": call.name, "arguments": call.arguments} for call in calls], ensure_ascii=False)
    return _scores(judge(case.body["tools"], case.body["expected_calls"], calls), shown)


def _scores(judged: Judged, shown: str | None) -> dict[str, Score]:
    scores = {}
    for flag, holds in judged.flags.items():
        if holds:
            scores[flag] = right(flag, SCORER, shown)
        elif holds is False:
            scores[flag] = wrong(flag, SCORER, judged.error_type, judged.reason, shown)
        else:
            scores[flag] = cannot_say(flag, SCORER, judged.error_type, judged.reason)
    return scores


def _judged(passed: int, error_type: str, reason: str) -> Judged:
    return Judged({flag: place < passed for place, flag in enumerate(FLAGS)}, error_type, reason)


def _unknown(error_type: str, reason: str) -> Judged:
    parses, *others = FLAGS
    return Judged({parses: True, **dict.fromkeys(others)}, error_type, reason)


def _invalid(calls: tuple[Call, ...], schemas: dict[str, Any]) -> tuple[str, str] | None:
    for call in calls:
        if call.name not in schemas:
            return "unknown_tool", f"no tool is called {quote(call.name)}"
        if unusable := lint(schemas[call.name]):
            raise CannotValidate(f"the schema of {quote(call.name)}: {unusable[0]}")
        if error := first_error(schemas[call.name], call.arguments):
            return "arguments", f"{call.name} {error}"
    return None


def _other_functions(calls: tuple[Call, ...], expected: tuple[Expected, ...]) -> tuple[str, str] | None:
    made, wanted = Counter(call.name for call in calls), Counter(call.name for call in expected)
    missing, extra = list((wanted - made).elements()), list((made - wanted).elements())
    if missing and extra:
        return "wrong_function", f"called {', '.join(extra)[:100]} instead of {', '.join(missing)[:100]}"
    if missing:
        return "missing_call", f"{', '.join(missing)[:100]} is not called"
    if extra:
        return "extra_call", f"{', '.join(extra)[:100]} is called beyond what was asked"
    return None


# What a call and an expected call disagree on, step by step: an error type and a reason, or None.
Fault = tuple[str, str] | None


def _holds_required(call: Call, wanted: Expected) -> Fault:
    for key, options in wanted.arguments.items():
        if key not in call.arguments and not options.optional:
            return "missing_argument", f"{quote(key)} is missing"
    return None


def _holds_types(call: Call, wanted: Expected) -> Fault:
    if fault := _holds_required(call, wanted):
        return fault
    for key, value in call.arguments.items():
        if key in wanted.arguments and not same_types(wanted.arguments[key], value):
            return "wrong_type", f"{quote(key)} is {quote(value)}, expected {_shown(wanted.arguments[key])}"
    return None


def _holds_values(call: Call, wanted: Expected, rel_tol: float) -> Fault:
    if fault := _holds_types(call, wanted):
        return fault
    for key, value in call.arguments.items():
        if key not in wanted.arguments:
            return "wrong_arguments", f"{quote(key)} is not expected"
        if not fits(wanted.arguments[key], value, rel_tol):
            return "wrong_arguments", f"{quote(key)} is {quote(value)}, expected {_shown(wanted.arguments[key])}"
    return None


def _unmatched(
    calls: tuple[Call, ...], expected: tuple[Expected, ...], holds: Callable[[Call, Expected], Fault]
) -> Fault:
    """None when every call can be given an expected call of its own that `holds` finds nothing against.

    Otherwise why not: what stands against the only candidate, or that none of several will do.
    """
    first: Fault = None
    edges = [0] * len(calls)
    for row, call in enumerate(calls):
        same_name = [column for column, wanted in enumerate(expected) if wanted.name == call.name]
        against = [holds(call, expected[column]) for column in same_name]
        edges[row] = sum(1 << column for column, fault in zip(same_name, against, strict=True) if fault is None)
        if first is None and not edges[row]:
            error_type = next(fault[0] for fault in against if fault)
            several = f"no expected call has the arguments {quote(call.arguments)}"
            first = error_type, f"{call.name}: {against[0][1] if len(against) == 1 and against[0] else several}"
    if first:
        return first
    return None if perfect(edges) else ("wrong_arguments", "several calls answer the same expected call")


def _shown(options: Any) -> str:
    values = [_plain(value) for value in options.values]
    return quote(values[0]) if len(values) == 1 else f"one of {quote(values)}"


def _plain(option: Any) -> Any:
    """An option as it was written, for a reason."""
    match option:
        case dict():
            return {key: [_plain(value) for value in options.values] for key, options in option.items()}
        case list():
            return [_plain(item) for item in option]
    return option
