"""Tool calls judged by JSON Schema and by value, as nested flags:

parses → valid (schema) → function → required → types → correct (values)

A flag is true only when those before it are. Parallel calls have no order: each of the later flags asks whether every
call made can be given an expected call of its own (a maximum matching) that it agrees with so far. Values are compared
as JSON values, nothing folded: 1 is 1.0, true is not 1, "5" is not 5; a number with a fraction within a tolerance.
`expected_calls: []` means that no call may be made: a plain answer is right. So does BFCL's category irrelevance in a
case without them; relevance there asks for any call that is valid. Where a call is expected, an answer
without one parses and no more: a variant that forgot how to open a call must not look valid.
"""

from __future__ import annotations

import json
import marshal
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from qualgate.records import CALL_UNREAD, Case, Evalset, Score
from qualgate.scoring.outcome import all_right, cannot_say, quote, right, wrong
from qualgate.scoring.schema import CannotValidate, first_error, quick
from qualgate.scoring.scorer import Scorer, in_dialect_first
from qualgate.scoring.tools.case_faults import tool_faults
from qualgate.scoring.tools.dialects import BadCall, Call, read_json
from qualgate.scoring.tools.dialects.detect import other_readings
from qualgate.scoring.tools.dialects.registry import AUTO, dialect
from qualgate.scoring.tools.expected import (
    ANY_CALL,
    Expected,
    as_schema,
    fits,
    read_expected,
    same_types,
    wanted_calls,
)
from qualgate.scoring.tools.matching import perfect

SCORER = "tool_call/9"
FLAGS = (
    "tool_call.parses",
    "tool_call.valid",
    "tool_call.function",
    "tool_call.required",
    "tool_call.types",
    "tool_call.correct",
)
HERMES = "hermes"
MAX_BLAMED = 2**14  # characters: a longer answer is not tried in every dialect
_SHOWN = json.JSONEncoder(ensure_ascii=False, check_circular=False)  # what was read from text has no circles
MAX_REMEMBERED = 2**16  # bytes of what a case documents or expects; more is read anew for each answer
MAX_COMPARED = 500_000  # values: every call is held against every value of every expected call


@dataclass(frozen=True, slots=True)
class Judged:
    """The flags of an answer's calls, compared with the tools and the expected calls."""

    flags: Mapping[str, bool | None]  # by metric, in order; None: undecided
    error_type: str = ""  # why the first flag that is not true is not
    reason: str = ""


@dataclass(frozen=True, slots=True)
class _Schema:
    """The schema of one tool's arguments."""

    schema: Any
    quick: Callable[[Any], bool] | None  # see `schema.quick`


def parameters(tools: list[dict[str, Any]]) -> dict[str, Any]:
    """Schema of the arguments, by tool name. A tool is `{name, parameters}`, or that under `function`.

    BFCL's documented types (dict, float, tuple, any …) are read as JSON Schema's.
    """
    functions = [tool.get("function", tool) for tool in tools]
    return {function["name"]: as_schema(function.get("parameters", {})) for function in functions}


def judge(tools: list[dict[str, Any]], expected_calls: Any, calls: tuple[Call, ...]) -> Judged:
    """Judge parsed calls. ValueError for expected calls of neither shape (see `expected`).

    expected_calls: or ANY_CALL, when one call or more that the tools' schemas allow is all that is asked for
    """
    expected, values = ((), 0) if expected_calls == ANY_CALL else _expected(expected_calls)
    if not calls and (expected or expected_calls == ANY_CALL):
        return _judged(1, "no_call", "no call is made")
    try:
        if fault := _invalid(calls, _offered(tools)):
            return _judged(1, *fault)
    except CannotValidate as failure:
        return _unknown("schema_unusable", str(failure))
    if expected_calls == ANY_CALL:
        return _RIGHT
    if fault := _other_functions(calls, expected):
        return _judged(2, *fault)
    if len(calls) * values > MAX_COMPARED:
        return _unknown("too_many_calls", f"{len(calls)} calls and {values} expected values are too many to match")
    if (reason := _unmatched(calls, expected, _against_values)) is None:  # a right answer needs this step alone
        return _RIGHT
    verdict = _judged(5, "wrong_arguments", reason)
    for passed, error_type, against in ((4, "wrong_type", _against_types), (3, "missing_argument", _against_required)):
        if (reason := _unmatched(calls, expected, against)) is None:
            break
        verdict = _judged(passed, error_type, reason)
    return verdict


# What a case documents and expects is read once and not once an answer. Known by its bytes: it is a plain value, and
# whoever changes it gets another reading.


def _offered(tools: list[dict[str, Any]]) -> dict[str, _Schema]:
    return _offered_by(key) if (key := _bytes_of(tools)) is not None else _read_offered(tools)


@lru_cache(maxsize=2048)
def _offered_by(key: bytes) -> dict[str, _Schema]:
    return _read_offered(marshal.loads(key))


def _read_offered(tools: list[dict[str, Any]]) -> dict[str, _Schema]:
    return {name: _Schema(schema, quick(schema)) for name, schema in parameters(tools).items()}


def _expected(calls: Any) -> tuple[tuple[Expected, ...], int]:
    """Return the expected calls, and the number of their values, for MAX_COMPARED."""
    return _expected_by(key) if (key := _bytes_of(calls)) is not None else _read_expected(calls)


@lru_cache(maxsize=2048)
def _expected_by(key: bytes) -> tuple[tuple[Expected, ...], int]:
    return _read_expected(marshal.loads(key))


def _read_expected(calls: Any) -> tuple[tuple[Expected, ...], int]:
    expected = read_expected(calls)
    return expected, sum(1 + sum(len(options.values) for options in call.arguments.values()) for call in expected)


def _bytes_of(value: Any) -> bytes | None:
    """Serialize a plain value, equal bytes only for equal values (True is not 1, nor 1 1.0); None for all others."""
    try:
        key = marshal.dumps(value, 2)  # 2: without references, which would make equal values differ
    except ValueError:
        return None
    return key if len(key) <= MAX_REMEMBERED else None


def dialect_of(body: Mapping[str, Any], written_in: str | None = None) -> str:
    """The dialect in which a case's answers are read: its own `dialect`, else `written_in`, else hermes if it has a
    reference `answer`, for that is what it was asked for; else AUTO."""
    return body.get("dialect", written_in or (HERMES if isinstance(body.get("answer"), str) else AUTO))


def score_tool_call(case: Case, evalset: Evalset, text: str, written_in: str | None = None) -> dict[str, Score]:
    """Score all six flags of an answer as text."""
    read = calls_or_scores(case, text, written_in)
    return read if isinstance(read, dict) else score_calls(case, read)


def calls_or_scores(case: Case, text: str, written_in: str | None = None) -> tuple[Call, ...] | dict[str, Score]:
    """The calls of an answer as text; all six flags where that settles them: no call can be read, or none is made.

    It is read as `dialect_of` says. Where the dialect was declared and only another one reads calls of the tools, the
    parser may be at fault: what the declared one alone calls wrong is not said here (`CALL_UNREAD`; the baseline's
    answers can tell), nor is the rest. Where the dialect follows from the reference answer, calls of another form are
    wrong, and the reason says so. AUTO: the first dialect that finds calls of the tools, hermes before others.
    """
    declared = dialect_of(case.body, written_in)
    name, tools = HERMES if declared == AUTO else declared, case.body["tools"]
    calls, fault = (), None
    try:
        calls = dialect(name).parse(text, tools)
    except BadCall as error:
        fault = error
    others = other_readings(text, name, tools) if not calls and len(text) <= MAX_BLAMED else {}
    readers = ", ".join([*others][:3])
    if others:
        if declared == AUTO:
            return next(iter(others.values()))
        if written_in or "dialect" in case.body:
            reason = f"{name} reads no call, {readers} reads it: is the parser the wrong one?"
            doubted = FLAGS if fault else FLAGS[1:] if wanted_calls(case.body) else ()  # wrong, if the parser is right
            return {
                flag: cannot_say(flag, SCORER, CALL_UNREAD if flag in doubted else "parser", reason) for flag in FLAGS
            }
    misread = f"; not the model's fault if the parser is another: {readers} reads it" if others else ""
    if fault:
        return flag_scores(_judged(0, fault.error_type, f"{fault}{misread}"), None)
    if not calls and wanted_calls(case.body):
        return flag_scores(_judged(1, "no_call", f"no call is made{misread}"), "[]")
    return calls


def score_decoded(case: Case, evalset: Evalset, calls: Any) -> dict[str, Score]:
    """Score all six flags of decoded calls: a list of `{"name", "arguments"}`, `{NAME: arguments}` or
    OpenAI's `tool_calls`, whose arguments are JSON as text."""
    try:
        return score_calls(case, read_calls(calls))
    except BadCall as error:
        return flag_scores(_judged(0, error.error_type, str(error)), None)


def read_calls(values: Any) -> tuple[Call, ...]:
    """Decoded calls of any of these shapes; BadCall for anything else."""
    if not isinstance(values, list):
        raise BadCall("call_shape", f"the calls are {quote(values)}, not a list")
    return tuple([_read(number, value) for number, value in enumerate(values, start=1)])


def openai_call(value: Any) -> tuple[str, Any] | None:
    """Name and arguments (as text, or decoded already) of one of OpenAI's `tool_calls`; None for anything else."""
    match value:
        case {"type": "function", "function": {"name": str() as name, "arguments": str() | dict() as arguments}}:
            if value.keys() <= {"id", "index", "type", "function"} and len(value["function"]) == 2:
                return name, arguments
    return None


def _read(number: int, value: Any) -> Call:
    """Return a call of any shape that is read: {"name", "arguments"}, OpenAI's, or {name: arguments}.

    BadCall for others.
    """
    match value:
        case {"name": str() as name, "arguments": dict() as arguments} if len(value) == 2:
            return Call(name, arguments)
    if wrapped := openai_call(value):
        name, arguments = wrapped
        try:
            arguments = read_json(arguments) if isinstance(arguments, str) else arguments
        except BadCall as error:
            raise BadCall(error.error_type, f"the arguments of call {number}: {error}") from None
        value = {name: arguments}
    if isinstance(value, dict) and len(value) == 1:
        ((name, arguments),) = value.items()
        if isinstance(name, str) and isinstance(arguments, dict):
            return Call(name, arguments)
    raise BadCall("call_shape", f"call {number} is {quote(value)}, not a name and an arguments object")


def score_calls(case: Case, calls: tuple[Call, ...]) -> dict[str, Score]:
    """Score all six flags of calls that were read."""
    calls_json = _SHOWN.encode([{"name": call.name, "arguments": call.arguments} for call in calls])
    return flag_scores(judge(case.body["tools"], wanted_calls(case.body), calls), calls_json)


def flag_scores(
    judged: Judged, shown: str | None, scorer: str = SCORER, flags: tuple[str, ...] = FLAGS
) -> dict[str, Score]:
    """Return the scores of a judged answer, by flag. shown: its calls as JSON."""
    if judged is _RIGHT:
        return all_right(flags, scorer, shown)
    scores = {}
    for flag in flags:
        if judged.flags[flag]:
            scores[flag] = right(flag, scorer, shown)
        elif judged.flags[flag] is False:
            scores[flag] = wrong(flag, scorer, judged.error_type, judged.reason, shown)
        else:
            scores[flag] = cannot_say(flag, scorer, judged.error_type, judged.reason)
    return scores


_HELD: list[Mapping[str, bool | None]] = [
    {flag: place < passed for place, flag in enumerate(FLAGS)} for passed in range(len(FLAGS) + 1)
]
_RIGHT = Judged(_HELD[-1])


def _judged(passed: int, error_type: str, reason: str) -> Judged:
    return Judged(_HELD[passed], error_type, reason)


def _unknown(error_type: str, reason: str) -> Judged:
    parses, *others = FLAGS
    return Judged({parses: True, **dict.fromkeys(others)}, error_type, reason)


def _invalid(calls: tuple[Call, ...], schemas: dict[str, _Schema]) -> tuple[str, str] | None:
    """Return error type and reason of the first call that its tool's schema refuses; None if there is none."""
    for call in calls:
        if (schema := schemas.get(call.name)) is None:
            return "unknown_tool", f"no tool is called {quote(call.name)}"
        if schema.quick and schema.quick(call.arguments):
            continue
        try:
            error = first_error(schema.schema, call.arguments)
        except CannotValidate as failure:
            raise CannotValidate(f"the schema of {quote(call.name)}: {failure}") from None
        if error:
            return "arguments", f"{call.name} {error}"
    return None


def _other_functions(calls: tuple[Call, ...], expected: tuple[Expected, ...]) -> tuple[str, str] | None:
    """Return error type and reason if other functions are called than expected, or not as often; else None."""
    if len(calls) == 1 == len(expected) and calls[0].name == expected[0].name:
        return None
    made_names, expected_names = Counter(call.name for call in calls), Counter(call.name for call in expected)
    missing, extra = list((expected_names - made_names).elements()), list((made_names - expected_names).elements())
    if missing and extra:
        return "wrong_function", f"called {', '.join(extra)[:100]} instead of {', '.join(missing)[:100]}"
    if missing:
        return "missing_call", f"{', '.join(missing)[:100]} is not called"
    if extra:
        return "extra_call", f"{', '.join(extra)[:100]} is called beyond what was asked"
    return None


# What stands against taking a call for an expected call, step by step: the argument; None: nothing so far.


def _against_required(call: Call, expected: Expected) -> str | None:
    for key, options in expected.arguments.items():
        if key not in call.arguments and not options.optional:
            return key
    return None


def _against_types(call: Call, expected: Expected) -> str | None:
    for key, value in call.arguments.items():
        if key in expected.arguments and not same_types(expected.arguments[key], value):
            return key
    return _against_required(call, expected)


def _against_values(call: Call, expected: Expected) -> str | None:
    for key, value in call.arguments.items():
        if key not in expected.arguments or not fits(expected.arguments[key], value):
            return key
    return _against_required(call, expected)


def _unmatched(
    calls: tuple[Call, ...], expected: tuple[Expected, ...], against: Callable[[Call, Expected], str | None]
) -> str | None:
    """Return None if every call can be matched with its own expected call, else why not.

    against: returns the argument in which a call misses an expected one, None if it fits.
    """
    if len(calls) == 1 == len(expected):  # of one name, as it was seen before: the usual case, and nothing to match
        key = against(calls[0], expected[0])
        return None if key is None else f"{calls[0].name}: {_difference(calls[0], expected[0], key)}"
    edges = []
    for call in calls:
        candidates = [index for index, expected_call in enumerate(expected) if expected_call.name == call.name]
        edges.append(sum(1 << index for index in candidates if against(call, expected[index]) is None))
        if edges[-1]:
            continue
        if len(candidates) > 1:
            return f"{call.name}: no expected call has the arguments {quote(call.arguments)}"
        return f"{call.name}: {_difference(call, expected[candidates[0]], against(call, expected[candidates[0]]))}"
    return None if perfect(edges) else "two calls answer the same expected call, and another has none"


def _difference(call: Call, expected: Expected, key: Any) -> str:
    if key not in call.arguments:
        return f"{quote(key)} is missing"
    if key not in expected.arguments:
        return f"{quote(key)} is not expected"
    return f"{quote(key)} is {quote(call.arguments[key])}, expected {_shown(expected.arguments[key])}"


def _shown(options: Any) -> str:
    values = [_plain(value) for value in options.values]
    return quote(values[0]) if len(values) == 1 else f"one of {quote(values)}"


def _plain(option: Any) -> Any:
    """Return an option as it was written, for a reason: options of arguments as lists of values."""
    match option:
        case dict():
            return {key: [_plain(value) for value in options.values] for key, options in option.items()}
        case list():
            return [_plain(item) for item in option]
    return option


SCORERS = (
    Scorer(
        name="tool_call",
        version=SCORER,
        metrics=FLAGS,
        function=score_tool_call,
        faults=tool_faults,
        decoded=score_decoded,
        written_in=in_dialect_first(score_tool_call),
    ),
)
