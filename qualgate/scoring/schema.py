"""JSON Schema 2020-12, safe on hostile answers: no reference leaves the schema, patterns are RE2, work is bounded.

Validation is jsonschema's; four of its keywords are replaced, because they run Python's backtracking regexes,
take quadratic time, or depend on hash order.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from contextvars import ContextVar
from fractions import Fraction
from functools import lru_cache
from typing import Any

import jsonschema_specifications
import re2
import referencing.exceptions
import referencing.jsonschema
from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from jsonschema.validators import extend

from qualgate.identity import canonical_json
from qualgate.scoring.json_value import depth, identity
from qualgate.scoring.outcome import quote
from qualgate.scoring.strict_json import MAX_DEPTH

MAX_NODES = 10_000
MAX_STEPS = 200_000  # keywords applied to one answer; about a second
DIALECT = "https://json-schema.org/draft/2020-12/schema"


class CannotValidate(Exception):
    """The schema, not the answer, is at fault: too much work, endless, or an unresolvable reference."""


class _OverBudget(Exception):
    pass


_steps: ContextVar[list[int]] = ContextVar("steps")


# ECMA 262 spellings, which schemas are written in, that RE2 spells otherwise.
_ECMA = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|([pP])\{([A-Za-z_]+)\}|.)", re.DOTALL)
_CATEGORIES = {"Letter": "L", "Lowercase_Letter": "Ll", "Uppercase_Letter": "Lu", "Mark": "M", "Number": "N",
               "Decimal_Number": "Nd", "digit": "Nd", "Punctuation": "P", "Symbol": "S", "Separator": "Z"}  # fmt: skip


def _in_re2(match: re.Match[str]) -> str:
    if match[1]:
        return f"\\x{{{match[1]}}}"
    if match[2]:
        return f"\\{match[2]}{{{_CATEGORIES.get(match[3], match[3])}}}"
    return match[0]


@lru_cache(maxsize=4096)
def pattern(source: str) -> Any:
    """`source` compiled by RE2, linear in any text; re2.error for what RE2 lacks (look-around, back-references)."""
    options = re2.Options()
    options.log_errors = False
    return re2.compile(_ECMA.sub(_in_re2, source), options)


def _pattern(validator: Any, source: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "string") and not pattern(source).search(instance):
        yield ValidationError(f"{instance!r} does not match {source!r}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if validator.is_type(instance, "object"):
        for source, subschema in patterns.items():
            for key, value in instance.items():
                if pattern(source).search(key):
                    yield from validator.descend(value, subschema, path=key, schema_path=source)


def _additional_properties(validator: Any, rest: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if not validator.is_type(instance, "object"):
        return
    named, patterns = schema.get("properties", {}), [pattern(source) for source in schema.get("patternProperties", {})]
    for key, value in instance.items():
        if key not in named and not any(each.search(key) for each in patterns):
            if rest is False:
                yield ValidationError(f"the key {key!r} is not allowed")
            else:
                yield from validator.descend(value, rest, path=key)


def _unique_items(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if wanted and validator.is_type(instance, "array") and len({identity(item) for item in instance}) < len(instance):
        yield ValidationError("an item stands twice in the array")


def _multiple_of(validator: Any, step: float, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # On the decimals as written: 0.3 is a multiple of 0.1, though its double is not.
    if validator.is_type(instance, "number") and Fraction(repr(instance)) % Fraction(repr(step)):
        yield ValidationError(f"{instance!r} is not a multiple of {step!r}")


def _counted(keyword: Any) -> Any:
    def counting(validator: Any, value: Any, instance: Any, schema: Any) -> Any:
        steps = _steps.get()
        steps[0] -= 1
        if steps[0] < 0:
            raise _OverBudget
        return keyword(validator, value, instance, schema)

    return counting


_KEYWORDS = {
    **Draft202012Validator.VALIDATORS,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "multipleOf": _multiple_of,
}
_Validator = extend(Draft202012Validator, {name: _counted(keyword) for name, keyword in _KEYWORDS.items()})
_ONLY_METASCHEMAS: Any = jsonschema_specifications.REGISTRY  # knows the drafts themselves and fetches nothing


@lru_cache(maxsize=8192)
def _compiled(canonical: str) -> Any:
    return _Validator(json.loads(canonical), registry=_ONLY_METASCHEMAS)


def first_error(schema: Any, value: Any) -> str | None:
    """Why `schema` refuses `value`, with the place; None when it accepts. CannotValidate when it cannot tell."""
    token = _steps.set([MAX_STEPS])
    try:
        error = next(_compiled(canonical_json(schema)).iter_errors(value), None)
    except _OverBudget:
        raise CannotValidate(f"the schema check took more than {MAX_STEPS:,} steps") from None
    except RecursionError:
        raise CannotValidate("the schema refers to itself too deeply") from None
    except referencing.exceptions.Unresolvable as failure:  # jsonschema's own wrapper is one too
        raise CannotValidate(f"a reference leads nowhere: {quote(str(failure), 120)}") from None
    except re2.error as failure:
        raise CannotValidate(f"a pattern RE2 cannot take: {_reason(failure)}") from None
    finally:
        _steps.reset(token)
    return None if error is None else f"{error.json_path[:120]}: {quote_message(error.message)}"


def quote_message(message: str, limit: int = 200) -> str:
    """jsonschema's message on one line, cut; it holds values of the answer, already escaped by repr."""
    line = " ".join(message[: limit + 1].split())
    return line if len(line) <= limit else line[:limit] + "…"


_ONE = ("additionalProperties", "items", "contains", "not", "if", "then", "else", "propertyNames", "contentSchema",
        "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
_MANY = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")


def _nodes(value: Any) -> int:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return 1 + sum(map(_nodes, children))


def lint(schema: Any) -> tuple[str, ...]:
    """What keeps `schema` from being used on untrusted answers; nothing when it is fine."""
    try:
        return _lint(canonical_json(schema))
    except RecursionError:
        return (f"nested deeper than {MAX_DEPTH} levels",)


@lru_cache(maxsize=8192)
def _lint(canonical: str) -> tuple[str, ...]:
    schema = json.loads(canonical)
    if not isinstance(schema, dict):
        return () if isinstance(schema, bool) else ("a schema is an object",)
    if depth(schema) > MAX_DEPTH:
        return (f"nested deeper than {MAX_DEPTH} levels",)
    if _nodes(schema) > MAX_NODES:
        return (f"more than {MAX_NODES:,} nodes",)
    if (dialect := schema.get("$schema", DIALECT)) not in (DIALECT, DIALECT + "#"):
        return (f"$schema {quote(dialect)}: only 2020-12 ({DIALECT}) is read",)
    try:
        everything = list(_subschemas(schema))
    except NotASchema as error:
        return (str(error),)
    faults = tuple(_faults(schema, everything))
    if not faults and any("$ref" in part or "$dynamicRef" in part for part in everything):
        faults = tuple(_endless(schema))
    return faults


class NotASchema(ValueError):
    """The metaschema refuses a part of a schema."""


def _subschemas(schema: Any, place: str = "$") -> Iterator[dict[str, Any]]:
    """`schema` and every schema in it, each checked against the metaschema before it is entered.

    What stands under `const`, `enum` or `examples` is data and is not entered.
    """
    if isinstance(schema, bool):
        return
    if error := _shape_error(canonical_json(_outline(schema))):
        raise NotASchema(f"not a 2020-12 schema at {place}: {error}")
    yield schema
    for key in _ONE:
        if key in schema:
            yield from _subschemas(schema[key], f"{place}.{key}")
    for key in _MANY:
        for index, item in enumerate(schema.get(key, ())):
            yield from _subschemas(item, f"{place}.{key}[{index}]")
    for key in _NAMED:
        for name, item in schema.get(key, {}).items():
            yield from _subschemas(item, f"{place}.{key}.{name[:40]}")


def _outline(schema: Any) -> Any:
    """`schema` one level deep, without names and texts: schemas share few outlines, so their checks are remembered."""
    if not isinstance(schema, dict):
        return schema
    outline = {}
    for key, value in schema.items():
        match value:
            case dict() if key in _NAMED:
                value = {}
            case dict() | bool() if key in _ONE:
                value = True
            case [_, *_] if key in _MANY and all(isinstance(item, (dict, bool)) for item in value):
                value = [True]
            case str() if key in ("title", "description"):
                value = ""
            case list() if key == "required" and all(isinstance(name, str) for name in value):
                value = ["name"] if len(set(value)) == len(value) else ["name", "name"]
            case _ if key in ("const", "default", "examples", "enum"):
                value = [] if isinstance(value, list) else ""
        outline[key] = value
    return outline


@lru_cache(maxsize=8192)
def _shape_error(canonical: str) -> str | None:
    error = next(_metaschema().iter_errors(json.loads(canonical)), None)
    return None if error is None else f"{error.json_path[:120]}: {quote_message(error.message)}"


@lru_cache(maxsize=1)
def _metaschema() -> Any:
    return Draft202012Validator(Draft202012Validator.META_SCHEMA)


def _faults(schema: dict[str, Any], everything: list[dict[str, Any]]) -> Iterator[str]:
    resolver = referencing.Registry().resolver_with_root(referencing.jsonschema.DRAFT202012.create_resource(schema))
    for part in everything:
        for key in ("$ref", "$dynamicRef"):
            if (target := part.get(key)) is None:
                continue
            if not target.startswith("#"):
                yield f"{key} {quote(target)} leaves the schema; only references that start with # are followed"
                continue
            try:
                resolver.lookup(target)
            except referencing.exceptions.Unresolvable:
                yield f"{key} {quote(target)} leads nowhere"
        if part is not schema and "$id" in part:
            yield f"$id {quote(part['$id'])} inside a schema; only the whole schema may have one"
        for source in (*([part["pattern"]] if "pattern" in part else ()), *part.get("patternProperties", {})):
            try:
                pattern(source)
            except re2.error as error:
                yield f"the pattern {quote(source)} is not one RE2 takes: {_reason(error)}"
    if any("unevaluatedProperties" in part for part in everything) and any(
        "patternProperties" in p for p in everything
    ):
        yield "unevaluatedProperties together with patternProperties cannot be checked safely; use additionalProperties"


def _reason(error: Exception) -> str:
    reason = error.args[0] if error.args else ""
    return quote_message(reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason))


def _endless(schema: dict[str, Any]) -> Iterator[str]:
    """One small value of each type finds a schema that applies itself to the same value without end."""
    for probe in (None, True, 0, "", [], {}):
        try:
            first_error(schema, probe)
        except CannotValidate as failure:
            yield f"cannot be used: {failure}"
            return
