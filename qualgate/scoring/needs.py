"""Fields that a case must have for each scorer. Each function yields what is missing or unusable in a case's body.

A case that passes can be scored whatever the answer is; any other is refused before answers are read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from qualgate.records import Evalset
from qualgate.scoring import unit_tests
from qualgate.scoring.code import package_faults, tests_of
from qualgate.scoring.match import NoNumber, Tolerance, reference_numbers
from qualgate.scoring.multiple_choice import right_choices
from qualgate.scoring.outcome import actual, quote
from qualgate.scoring.references import references_of
from qualgate.scoring.schema import CannotValidate, first_error, lint, unread_formats
from qualgate.scoring.structure import FORMATS, asserted
from qualgate.scoring.text import normalize
from qualgate.scoring.tools import served
from qualgate.scoring.tools.dialects import registry as dialects
from qualgate.scoring.tools.expected import ANY_CALL, as_schema, example, read_call, wanted_calls
from qualgate.scoring.tools.strict import AUTO
from qualgate.scoring.unit_tests import examples, reference

TOOL = '{"name": "weather", "parameters": {"type": "object", "properties": {"city": {"type": "string"}}}}'


def reference_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `answer` for exact_match."""
    answer = body.get("answer")
    if not isinstance(answer, str):
        yield f"exact_match needs `answer`, a text; {actual(body, 'answer')}"
    elif not normalize(answer, evalset.normalizers):
        after = " after the set's normalizers" if answer else ""
        yield f"`answer` {quote(answer)} is empty{after}, so an answer that says nothing would be right"


def number_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `answer` for numeric."""
    answer = body.get("answer")
    if type(answer) not in (str, int, float):
        yield f"numeric needs `answer`, a number; {actual(body, 'answer')}"
        return
    try:
        reference_numbers(answer)
    except NoNumber as error:
        why = "there is none in it" if error.error_type == "no_number" else str(error)
        yield f"numeric needs a number in `answer`: {why}; {actual(body, 'answer')}"
    try:
        Tolerance.of(body)
    except ValueError as error:
        yield f"`tolerance`: {error}"


def compared_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `answer` for exact_match in compat mode: a text, or a number that is compared as text."""
    if type(body.get("answer")) not in (str, int, float):
        yield f"exact_match needs `answer`, a text or a number; {actual(body, 'answer')}"


def references_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `answer` for f1: a text or a list of texts, one of them not empty."""
    answers = references_of(body)
    if not answers or not all(isinstance(each, str) and each.strip() for each in answers):
        yield f"f1 needs `answer`, a text or a list of texts, none of them empty; {actual(body, 'answer')}"


def spans_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `answer` for f1.drop: a text, a list of texts, or a list of lists (each the spans of one reference)."""
    references = [entry if isinstance(entry, list) else [entry] for entry in references_of(body)]
    if not references or not all(
        spans and all(isinstance(span, str) and span.strip() for span in spans) for spans in references
    ):
        expected_form = (
            'a reference or a list of them, each a text, or a list of texts for several spans, as ["3", ["A", "B"]]'
        )
        yield f"f1.drop needs `answer`, {expected_form}; {actual(body, 'answer')}"


def choice_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `choices`, and `answer` among them, for multiple_choice."""
    choices = body["choices"]
    if (
        not isinstance(choices, list)
        or len(choices) < 2
        or not all(isinstance(choice, str) and choice for choice in choices)
    ):
        yield f"multiple_choice needs `choices`, a list of two texts or more, none empty; {actual(body, 'choices')}"
    elif len(set(choices)) < len(choices):
        twice = next(choice for choice in choices if choices.count(choice) > 1)
        yield f"two of `choices` are equal, {quote(twice)}: no answer could tell them apart"
    else:
        try:
            if not right_choices(body):
                yield "multiple_choice needs `answer`, one of the choices; found []"
        except ValueError as error:
            yield f"`answer`: {error}"


def weighed_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `choices`, `answer` among them, and `delimiter` before each choice, for multiple_choice.likelihood."""
    yield from choice_faults(body, evalset)
    if not isinstance(body.get("delimiter", ""), str):
        yield f"`delimiter` must be a text, which may be empty; {actual(body, 'delimiter')}"


def lettered_faults(body: dict[str, Any]) -> Iterator[str]:
    """Check `choices` for the filter multi_choice_regex, which has a letter for each."""
    choices = body.get("choices")
    if (
        not isinstance(choices, list)
        or not 1 <= len(choices) <= 26
        or not all(isinstance(choice, str) for choice in choices)
    ):
        yield f"the filter multi_choice_regex needs `choices`, a list of 1 to 26 texts; {actual(body, 'choices')}"


def refuse_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `refuse` (true or false) for refusal."""
    if not isinstance(body["refuse"], bool):
        yield f"refusal needs `refuse`: true (it must be refused) or false (answered); {actual(body, 'refuse')}"


def code_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check, for code, that `tests` can be read and assert something, and `entry_point` if they need one."""
    for key in ("entry_point", "prompt", "test_setup_code"):
        if not isinstance(body.get(key) or "", str):
            yield f"`{key}` must be a text; {actual(body, key)}"
            return
    yield from package_faults(body)
    if examples.written(body) or reference.written(body):
        yield from (examples if examples.written(body) else reference).faults(body)
        return
    try:
        unit_tests.read(tests_of(body), body.get("entry_point"), body.get("prompt") or "")
    except unit_tests.BadTests as error:
        yield f"code needs `tests`: {error}"


def schema_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check `schema` and `formats` for json.schema. json.valid needs nothing."""
    if "json.schema" not in evalset.metrics:
        return
    if "schema" not in body:
        yield "json.schema needs `schema`; it is missing"
        return
    if body.get("formats", "annotate") not in FORMATS:
        yield f"`formats` must be one of {', '.join(FORMATS)}; {actual(body, 'formats')}"
    for reason in lint(body["schema"], formats=asserted(body)):
        yield f"`schema`: {reason}"


def schema_notes(body: dict[str, Any]) -> Iterator[str]:
    """Yield the formats that a valid case asserts and its schema's draft does not define."""
    for name in unread_formats(body["schema"]) if asserted(body) else ():
        yield f"`schema` asks for the format {quote(name)}, which its draft does not define: it is not checked"


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


def tool_faults(body: dict[str, Any], evalset: Evalset) -> Iterator[str]:
    """Check, for tool_call, `tools` and `expected_calls` (BFCL's shapes, or JSON Schema and exact calls), `dialect` and
    `served_by`.

    BFCL's categories relevance and irrelevance need no `expected_calls`.
    """
    tools, calls = body.get("tools"), wanted_calls(body)
    if not isinstance(tools, list) or not tools:
        yield f"tool_call needs `tools`, a list of tools as {TOOL}; {actual(body, 'tools')}"
        return
    if "dialect" in body and body["dialect"] not in (known := (*dialects.names(), AUTO)):
        yield f"`dialect` must be one of {', '.join(known)}; {actual(body, 'dialect')}"
    yield from served.served_faults(body)
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
