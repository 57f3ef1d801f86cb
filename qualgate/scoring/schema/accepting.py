"""A check that is quick because it can only accept."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from qualgate.scoring.schema.linter import lint


def quick(schema: Any) -> Callable[[Any], bool] | None:
    """Return a check that can only accept: if it holds, the value is valid; if not, `first_error` must decide.

    For objects, arrays and scalars by `type`, with `properties`, `required`, `additionalProperties` (a boolean),
    `items` and texts of an `enum`, at any depth; None for a schema with any other keyword, and for an unsound one.
    """
    return None if lint(schema) else _accepts(schema)


_ANNOTATIONS = {"title", "description", "default", "examples", "format", "$comment", "deprecated"}
_TYPES: dict[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
}  # fmt: skip
_QUICK_ITEMS = 256  # of a longer array all are left to `first_error` and its steps


def _accepts(schema: Any) -> Callable[[Any], bool] | None:
    """Return a quick check that accepts only valid values; None for a schema it does not understand.

    A value that it refuses may still be valid.
    """
    if not isinstance(schema, dict):
        return (lambda value: True) if schema is True else None
    match schema.get("type"), schema.keys() - _ANNOTATIONS - {"type"}:
        case "object", extra if extra <= {"properties", "required", "additionalProperties"}:
            return _accepts_object(schema)
        case "array", extra if extra <= {"items"}:
            if (item := _accepts(schema.get("items", True))) is None:
                return None
            return lambda value: type(value) is list and len(value) <= _QUICK_ITEMS and all(map(item, value))
        case None | "string", extra if extra == {"enum"}:
            texts = frozenset(text for text in schema["enum"] if isinstance(text, str))
            return lambda value: type(value) is str and value in texts
        case str() | list() as wanted, extra if not extra:
            names = [wanted] if isinstance(wanted, str) else wanted
            types = frozenset(type for name in names for type in _TYPES.get(name, ()))
            return lambda value: type(value) in types
        case None, extra if not extra:
            return lambda value: True
    return None


def _accepts_object(schema: dict[str, Any]) -> Callable[[Any], bool] | None:
    """Return the quick check of an object schema; None if a property has none."""
    named = {name: _accepts(subschema) for name, subschema in schema.get("properties", {}).items()}
    allows_others, required = schema.get("additionalProperties", True), schema.get("required", ())
    if not isinstance(allows_others, bool) or None in named.values():
        return None
    checks: dict[str, Any] = named

    def accepts(value: Any) -> bool:
        """Accept an object with all required keys whose values are accepted by their properties' checks."""
        if type(value) is not dict:
            return False
        for name in required:
            if name not in value:
                return False
        for name, item in value.items():
            if (check := checks.get(name)) is None:
                if not allows_others:
                    return False
            elif not check(item):
                return False
        return True

    return accepts
