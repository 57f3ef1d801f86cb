"""Tool calls scored as BFCL does (see `compat`), by the flags that it knows."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from qualgate.records import Case, Evalset, Score
from qualgate.scoring.outcome import actual, cannot_say, quote
from qualgate.scoring.scorer import Scorer
from qualgate.scoring.tools import strict
from qualgate.scoring.tools.compat import check
from qualgate.scoring.tools.compat_decode import CannotDecode, decode, decode_function_calling
from qualgate.scoring.tools.compat_java import TooLong
from qualgate.scoring.tools.compat_source import NoGrammar, decode_source
from qualgate.scoring.tools.expected import BFCL_CALL
from qualgate.scoring.tools.strict import Judged

COMPAT = "tool_call.compat/3"
COMPAT_METRIC = "tool_call.compat"
_OBJECTS = re.compile(r"\s*\[\s*\{")  # how function-calling mode begins and prompt mode never does
BFCL_TOOL = (  # shown where a tool has another shape
    '{"name": "weather", "parameters": {"type": "dict", "properties": {"city": {"type": "string"}}, '
    '"required": ["city"]}}'
)
COMPAT_FLAGS = ("tool_call.parses", "tool_call.correct")  # what every compat verdict can say


def score_compat(case: Case, evalset: Evalset, text: str) -> dict[str, Score]:
    """BFCL's verdict on an answer as text: its prompt mode's calls in the language of the case's category (a Python
    list, Java or JavaScript source), or its function-calling mode's JSON.

    A case has `tools` and `expected_calls` in BFCL's shapes, and may have `category` (see `category_of`). Without the
    extra `bfcl` there is no verdict on Java and JavaScript source, nor on more of it than is read.
    """
    language = language_of(category_of(case.body))
    try:
        if _OBJECTS.match(text):
            calls = decode_function_calling(text)
        else:
            calls = decode(text) if language == "python" else decode_source(text, language)
    except CannotDecode as error:
        return _scored(case, None, str(error))
    except (NoGrammar, TooLong) as failure:
        word = "too_long" if isinstance(failure, TooLong) else "not_decodable_here"
        return {flag: cannot_say(flag, COMPAT, word, str(failure)) for flag in COMPAT_FLAGS}
    return _scored(case, calls, "")


def score_compat_alone(case: Case, evalset: Evalset, text: str) -> dict[str, Score]:
    """BFCL's verdict under a name of its own, beside the strict reading's."""
    verdict = score_compat(case, evalset, text)[COMPAT_FLAGS[-1]]
    return {COMPAT_METRIC: replace(verdict, metric=COMPAT_METRIC)}


def score_compat_decoded(case: Case, evalset: Evalset, calls: Any) -> dict[str, Score]:
    """BFCL's verdict on calls that someone else decoded: `[{NAME: arguments}]`, or `{"name", "arguments"}` or one of
    OpenAI's `tool_calls` each. Arguments that are no JSON make the whole answer one that cannot be decoded."""
    if isinstance(calls, list):
        try:
            calls = [_as_bfcl(call) for call in calls]
        except CannotDecode as error:
            return _scored(case, None, str(error))
    return _scored(case, calls, "")


def language_of(category: str) -> str:
    """Return the language of a BFCL category, by what its name contains."""
    return "javascript" if "javascript" in category else "java" if "java" in category else "python"


def category_of(body: dict[str, Any]) -> str:
    """The case's own category, else the one of BFCL's that its tools and expected calls would be in."""
    if "category" in body:
        return body["category"]
    match len(body["expected_calls"]), len(body["tools"]):
        case 0, _:
            return "irrelevance"
        case 1, 1:
            return "simple"
        case 1, _:
            return "multiple"
        case _, 1:
            return "parallel"
    return "parallel_multiple"


AST_CATEGORIES = ("simple", "multiple", "parallel", "relevance", "java")  # javascript holds java


def compat_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Yield what in a case does not have BFCL's shapes, which compat mode needs, one line each."""
    category, tools, expected = body.get("category", ""), body.get("tools"), body.get("expected_calls")
    if not isinstance(category, str):
        yield f"`category` must be a text; found {quote(category)}"
        return
    if category and not any(kind in category for kind in AST_CATEGORIES):
        known = ", ".join(AST_CATEGORIES)
        yield f"`category` must hold one of {known}: others have no AST rules; found {quote(category)}"
        return
    if not isinstance(tools, list) or not tools:
        yield f"tool_call needs `tools`, a list of tools as {BFCL_TOOL}; {actual(body, 'tools')}"
        return
    for index, tool in enumerate(tools):
        match tool.get("function", tool) if isinstance(tool, dict) else None:
            case {"name": str(), "parameters": {"properties": dict(), "required": list()}}:
                pass
            case _:
                needed = "`name` and `parameters` with `properties` and `required`"
                yield f"tools[{index}] must have {needed}, as {BFCL_TOOL}"
    if "relevance" in category:
        return
    if not isinstance(expected, list):
        yield f"tool_call needs `expected_calls`, a list of calls as {BFCL_CALL}; {actual(body, 'expected_calls')}"
        return
    for index, call in enumerate(expected):
        accepted = list(call.values()) if isinstance(call, dict) else []
        if len(accepted) != 1 or not isinstance(accepted[0], dict):
            yield f"expected_calls[{index}] must be one name with an object, as {BFCL_CALL}; found {quote(call)}"
        elif wrong_keys := [key for key, values in accepted[0].items() if not isinstance(values, list)]:
            example = f"{quote(wrong_keys[0])} has {quote(accepted[0][wrong_keys[0]])}"
            yield (
                f"expected_calls[{index}] must hold a list of accepted values for each parameter, as {BFCL_CALL}, "
                f'where "" says that it may be left out; {example}'
            )


def _as_bfcl(call: Any) -> Any:
    """Return a call as BFCL's {name: arguments}; what is in no known form as it is."""
    if wrapped := strict.openai_call(call):
        name, arguments = wrapped
        if isinstance(arguments, dict):
            return {name: arguments}
        return decode_function_calling(json.dumps([{name: arguments}]))[0]
    match call:
        case {"name": str() as name, "arguments": dict() as arguments} if len(call) == 2:
            return {name: arguments}
    return call


def _scored(case: Case, calls: Any, undecoded: str) -> dict[str, Score]:
    """Return the scores of a case's calls by BFCL's rules. undecoded: why calls is None; "" if they were decoded."""
    category = category_of(case.body)
    functions = [tool.get("function", tool) for tool in case.body["tools"]]
    checked = check(category, language_of(category), functions, calls, case.body.get("expected_calls", []))
    calls_json = None if calls is None else json.dumps(calls, ensure_ascii=False, default=repr, skipkeys=True)
    flags = {
        "tool_call.parses": not checked.error_type.startswith("ast_decoder"),
        "tool_call.correct": checked.valid,
    }
    judged = Judged(flags, checked.error_type, undecoded or checked.reason)
    return strict.flag_scores(judged, calls_json, COMPAT, COMPAT_FLAGS)


SCORERS = (
    Scorer(
        name="tool_call",
        mode="compat",
        version=COMPAT,
        metrics=COMPAT_FLAGS,
        function=score_compat,
        faults=compat_faults,
        decoded=score_compat_decoded,
    ),
)
# For rules, the verdict has a metric of its own, beside the strict reading's.
BESIDE_STRICT = replace(SCORERS[0], metrics=(COMPAT_METRIC,), function=score_compat_alone, decoded=None)
