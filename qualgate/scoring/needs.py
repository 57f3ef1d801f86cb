"""What a case must carry for each scorer. Each function names what is missing or cannot be used in a case's body.

A case that passes can be scored whatever the answer is; one that does not is refused before any answer is looked at.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qualgate.records import Evalset
from qualgate.scoring.match import NoNumber, last_numbers
from qualgate.scoring.outcome import quote
from qualgate.scoring.schema import CannotValidate, first_error, lint
from qualgate.scoring.text import normalize


def found(body: dict[str, Any], key: str) -> str:
    """What stands under `key`, for the end of a message about it."""
    return f"found {quote(body[key])}" if key in body else "it is missing"


def reference_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Of exact_match: `answer`."""
    answer = body.get("answer")
    if not isinstance(answer, str):
        yield f"exact_match needs `answer`, a text; {found(body, 'answer')}"
    elif not normalize(answer, evalset.normalizers):
        after = " after the set's normalizers" if answer else ""
        yield f"`answer` {quote(answer)} is empty{after}, so an answer that says nothing would be right"


def number_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Of numeric: `answer`."""
    answer = body.get("answer")
    if type(answer) not in (str, int, float):
        yield f"numeric needs `answer`, a number; {found(body, 'answer')}"
        return
    try:
        last_numbers(str(answer))
    except NoNumber as error:
        yield f"numeric needs a number in `answer`: {error}"


def schema_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Of json.schema: `schema`. json.valid needs nothing."""
    if "json.schema" not in evalset.metrics:
        return
    if "schema" not in body:
        yield "json.schema needs `schema`; it is missing"
        return
    for reason in lint(body["schema"]):
        yield f"`schema`: {reason}"


def tool_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Of tool_call: `tools` and `expected_calls`."""
    tools, calls = body.get("tools"), body.get("expected_calls")
    if not isinstance(tools, list) or not tools:
        yield f"tool_call needs `tools`, a list of tools; {found(body, 'tools')}"
        return
    schemas: dict[str, Any] = {}
    for index, tool in enumerate(tools):
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            yield f"tools[{index}] must be an object with a `name` and `parameters`"
            continue
        if function["name"] in schemas:
            yield f"tools[{index}]: a second tool {quote(function['name'])}"
        reasons = lint(function.get("parameters", {}))
        for reason in reasons:
            yield f"tools[{index}].parameters: {reason}"
        schemas[function["name"]] = True if reasons else function.get("parameters", {})
    if not isinstance(calls, list):
        yield f"tool_call needs `expected_calls`, a list ([] = no call may be made); {found(body, 'expected_calls')}"
        return
    for index, call in enumerate(calls):
        match call:
            case {"name": str() as name, "arguments": dict() as arguments} if len(call) == 2:
                try:
                    if name not in schemas:
                        yield f"expected_calls[{index}] calls {quote(name)}, which no tool is called"
                    elif error := first_error(schemas[name], arguments):
                        yield f"expected_calls[{index}]: the tool's own schema refuses it, {error}"
                except CannotValidate as failure:
                    yield f"expected_calls[{index}]: {failure}"
            case _:
                yield f"expected_calls[{index}] must be an object with `name` and `arguments` and nothing else"
