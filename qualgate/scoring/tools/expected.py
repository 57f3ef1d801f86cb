"""A case's tools and expected calls, in either shape, as one form.

Tools: JSON Schema `parameters`, or BFCL's documented types (dict, float, tuple, any, Java's and JavaScript's), which
become JSON Schema here. Expected calls: `{"name": NAME, "arguments": {…}}`, exactly those; or BFCL's possible answers
`{NAME: {parameter: [accepted value, …]}}`, where "" means that the parameter may be left out, and the
values of a dict are lists of accepted values again.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from qualgate.scoring.outcome import quote

REL_TOL = 1e-9  # of a number with a fraction; 0.1 + 0.2 is 0.3

EXACT_CALL = '{"name": "weather", "arguments": {"city": "Paris"}}'  # shown where a call has another shape
BFCL_CALL = '{"weather": {"city": ["Paris", "paris"], "unit": ["C", ""]}}'

ANY_CALL = "any call"  # in place of expected calls: BFCL's relevance, where no particular call is the right one

_JSON_TYPES = {
    "dict": "object", "HashMap": "object", "Hashtable": "object", "float": "number", "double": "number",
    "tuple": "array", "list": "array", "Array": "array", "ArrayList": "array", "Queue": "array", "Stack": "array",
    "Set": "array", "bool": "boolean", "Boolean": "boolean", "byte": "integer", "short": "integer", "long": "integer",
    "Bigint": "integer", "char": "string", "String": "string",
}  # fmt: skip


def as_schema(parameters: Any) -> Any:
    """`parameters` as JSON Schema: BFCL's words for types replaced wherever a type is documented."""
    if not isinstance(parameters, dict):
        return parameters
    schema = dict(parameters)
    if isinstance(word := schema.get("type"), str):
        if word in ("any", "Any"):
            del schema["type"]
        schema |= {"type": _JSON_TYPES[word]} if word in _JSON_TYPES else {}
    if isinstance(properties := schema.get("properties"), dict):
        schema["properties"] = {name: as_schema(item) for name, item in properties.items()}
    for key in ("items", "additionalProperties"):
        if key in schema:
            schema[key] = as_schema(schema[key])
    return schema


@dataclass(frozen=True, slots=True)
class Options:
    """The accepted values of one argument. A dict among them holds Options again, a list plain items."""

    values: tuple[Any, ...]
    optional: bool = False  # nothing at all would be right, too


@dataclass(frozen=True, slots=True)
class Expected:
    """One expected call."""

    name: str
    arguments: dict[str, Options]


def read_expected(calls: Any) -> tuple[Expected, ...]:
    """Expected calls of either shape. ValueError with the place for anything else."""
    if not isinstance(calls, list):
        raise ValueError(f"expected_calls must be a list ([] = no call may be made); found {quote(calls)}")
    return tuple(read_call(f"expected_calls[{index}]", call) for index, call in enumerate(calls))


def wanted_calls(body: Mapping[str, Any]) -> Any:
    """Return a case's `expected_calls`, else by its `category` none or ANY_CALL; None if it has neither."""
    if "expected_calls" in body or not isinstance(category := body.get("category"), str):
        return body.get("expected_calls")
    return ([] if "irrelevance" in category else ANY_CALL) if "relevance" in category else None


def read_call(place: str, call: Any) -> Expected:
    """One expected call of either shape. ValueError, naming `place`, for anything else."""
    match call:
        case {"name": str() as name, "arguments": dict() as arguments} if len(call) == 2:
            return Expected(name, {key: Options((_exact(value),)) for key, value in arguments.items()})
        case dict() if len(call) == 1:
            ((name, accepted),) = call.items()
            if isinstance(accepted, dict) and all(isinstance(values, list) for values in accepted.values()):
                return Expected(name, {key: _options(values) for key, values in accepted.items()})
    raise ValueError(
        f"{place} must be a call as {EXACT_CALL}, with nothing else, or as BFCL's {BFCL_CALL}, where each parameter "
        f"has a list of its accepted values; found {quote(call)}"
    )


def _exact(value: Any) -> Any:
    match value:
        case dict():
            return {key: Options((_exact(item),)) for key, item in value.items()}
        case list() | tuple():
            return [_exact(item) for item in value]
    return value


def _options(values: Any) -> Options:
    """Read BFCL's accepted values: a list, or a single value in place of one."""
    values = values if isinstance(values, list) else [values]
    return Options(tuple(_accepted(value) for value in values), optional="" in values)


def _accepted(value: Any) -> Any:
    match value:
        case dict():
            return {key: _options(item) for key, item in value.items()}
        case list() | tuple():
            return [_accepted(item) for item in value]
    return value


def example(expected: Expected, allowed: Callable[[str, Any], bool]) -> dict[str, Any]:
    """Return right arguments: of each the first value that `allowed` (argument, value) accepts, else the first.

    An argument that may be left out is, where none of its values is allowed.
    """
    arguments: dict[str, Any] = {}
    for key, options in expected.arguments.items():
        values = [_first(value) for value in options.values if not (options.optional and value == "")]
        allowed_values = [value for value in values if allowed(key, value)]
        if allowed_values or (values and not options.optional):
            arguments[key] = (allowed_values or values)[0]
    return arguments


def _first(value: Any) -> Any:
    match value:
        case dict():
            return {key: _first(options.values[0]) for key, options in value.items() if not options.optional}
        case list():
            return [_first(item) for item in value]
    return value


def fits(options: Options, value: Any) -> bool:
    """Whether `value` is one of the options: texts exactly, true is not 1, whole numbers exactly, others within
    REL_TOL; lists in order; objects without order, no key too many and none missing but the optional ones."""
    for option in options.values:  # noqa: SIM110 - a generator costs more than most of these comparisons
        if _fits(option, value):
            return True
    return False


_EXACT = (str, int, bool, type(None))


def _fits(option: Any, value: Any) -> bool:
    """Return whether a value fits an option, both of the same type."""
    if type(option) is type(value) and type(option) in _EXACT:
        return option == value
    if kind(option) != kind(value):
        return False
    match option:
        case dict():
            return all(key in option and fits(option[key], item) for key, item in value.items()) and all(
                options.optional or key in value for key, options in option.items()
            )
        case list():
            return len(option) == len(value) and all(
                _fits(item_option, item) for item_option, item in zip(option, value, strict=True)
            )
    if option == value:
        return True
    if kind(option) != "number" or (isinstance(option, int) and isinstance(value, int)):
        return False
    try:
        return math.isclose(option, value, rel_tol=REL_TOL)
    except OverflowError:  # a whole number beyond any double
        return False


def same_types(options: Options, value: Any) -> bool:
    """Whether `value` is of one option's type; so are the entries that both hold, and the items of a list."""
    return any(_same_types(option, value) for option in options.values)


def _same_types(option: Any, value: Any) -> bool:
    """Return whether a value has an option's types, also within objects and lists."""
    if kind(option) != kind(value):
        return False
    match option:
        case dict():
            return all(same_types(option[key], item) for key, item in value.items() if key in option)
        case [_, *_]:
            return {kind(item) for item in value} <= {kind(item) for item in option}
    return True


def kind(value: Any) -> str:
    """JSON's word for the type of `value`; a number is one type."""
    match value:
        case bool():
            return "boolean"
        case int() | float():
            return "number"
        case list() | tuple():
            return "array"
        case dict():
            return "object"
        case str():
            return "string"
    return "null" if value is None else type(value).__name__
