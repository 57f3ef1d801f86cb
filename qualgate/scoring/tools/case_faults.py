"""Check what a case says of tool calls: its tools, its expected calls, its dialect and its server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from os.path import isabs
from typing import Any

from qualgate.records import Evalset
from qualgate.scoring.outcome import actual, quote
from qualgate.scoring.schema import CannotValidate, first_error, lint
from qualgate.scoring.tools.dialects.registry import AUTO, names
from qualgate.scoring.tools.expected import ANY_CALL, as_schema, example, read_call, wanted_calls

TOOL = '{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}'
SERVED_BY = "served_by"  # key of a case: {engine, python}


def tool_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `tools` and `expected_calls` (BFCL's shapes, or JSON Schema and exact calls), `dialect` and
    `served_by`.

    BFCL's categories relevance and irrelevance need no `expected_calls`.
    """
    tools, calls = body.get("tools"), wanted_calls(body)
    if not isinstance(tools, list) or not tools:
        yield f"tool_call needs `tools`, a list of tools as {TOOL}; {actual(body, 'tools')}"
        return
    if "dialect" in body and body["dialect"] not in (known := (*names(), AUTO)):
        yield f"`dialect` must be one of {', '.join(known)}; {actual(body, 'dialect')}"
    yield from served_faults(body)
    schemas: dict[str, Any] = {}
    for index, tool in enumerate(tools):
        function = tool.get("function", tool) if isinstance(tool, dict) else None
        if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
            yield f"tools[{index}] must be an object with a `name` and `parameters`, as {TOOL}; found {quote(tool)}"
            continue
        if function["name"] in schemas:
            yield f"tools[{index}]: a second tool {quote(function['name'])}"
        schema = as_schema(function.get("parameters", {}))
        reasons = lint(schema)
        for reason in reasons:
            yield f"tools[{index}].parameters: {reason}"
        schemas[function["name"]] = True if reasons else schema
    if calls == ANY_CALL and "expected_calls" not in body:
        return
    if not isinstance(calls, list):
        yield f"tool_call needs `expected_calls`, a list ([] = no call may be made); {actual(body, 'expected_calls')}"
        return
    for index, call in enumerate(calls):
        try:
            expected = read_call(f"expected_calls[{index}]", call)
            if expected.name not in schemas:
                yield f"expected_calls[{index}] calls {quote(expected.name)}, which no tool is called"
            elif len(call) == 2 and (error := first_error(schemas[expected.name], call["arguments"])):
                yield f"expected_calls[{index}]: the tool's own schema refuses it, {error}"
        except ValueError as error:
            yield str(error)
        except CannotValidate as failure:
            yield f"expected_calls[{index}]: {failure}"


def served_faults(body: Mapping[str, Any]) -> Iterator[str]:
    """Yield what is wrong with a case's `served_by`."""
    match body.get(SERVED_BY):
        case None if SERVED_BY not in body:
            return
        case {"engine": "vllm" | "sglang", "python": str() as python} if len(body[SERVED_BY]) == 2 and isabs(python):
            return
    needed = "`engine` (vllm or sglang) and `python`, the absolute path of its environment's interpreter"
    yield f"`{SERVED_BY}` must name {needed}; {actual(body, SERVED_BY)}"


def tool_notes(body: dict[str, Any]) -> Iterator[str]:
    """Yield the expected calls of a valid case whose accepted values all violate the tool's own schema.

    Published sets hold such calls. An answer that gives what is expected is then right by value and not valid.
    """
    functions = [tool.get("function", tool) for tool in body["tools"]]
    schemas = {function["name"]: as_schema(function.get("parameters", {})) for function in functions}
    calls = wanted_calls(body)
    for index, call in enumerate(calls if isinstance(calls, list) else ()):
        wanted = read_call(f"expected_calls[{index}]", call)
        schema = schemas[wanted.name]
        properties = schema.get("properties") if isinstance(schema, dict) else None

        def allowed(key: str, value: Any, known: Any = properties) -> bool:
            return not isinstance(known, dict) or key not in known or first_error(known[key], value) is None

        try:
            error = first_error(schema, example(wanted, allowed))
        except CannotValidate as failure:
            error = str(failure)
        if error:
            yield f"expected_calls[{index}]: the tool's own schema refuses every accepted value: {wanted.name} {error}"
