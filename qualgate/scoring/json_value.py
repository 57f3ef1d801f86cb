"""JSON values compared as JSON: numbers by value (1 is 1.0), true is not 1, objects without order."""

from __future__ import annotations

from typing import Any


def identity(value: Any) -> Any:
    """A hashable key; two values are the same JSON value exactly when their keys are equal."""
    match value:
        case bool():
            return ("true",) if value else ("false",)
        case list():
            return ("list", *map(identity, value))
        case dict():
            return frozenset((key, identity(item)) for key, item in value.items())
        case _:
            return value  # str, None, int and float hash and compare as they should


def depth(value: Any) -> int:
    """Levels of nesting: 0 for a scalar."""
    level, deepest = [value], -1
    while level:
        deepest += 1
        level = [
            item
            for outer in level
            if isinstance(outer, (list, dict))
            for item in (outer.values() if isinstance(outer, dict) else outer)
        ]
    return deepest


def size(value: Any) -> int:
    """Return the size of a value in steps: one for each value, key, and 20 characters of text."""
    total, pending = 0, [value]
    while pending:
        item = pending.pop()
        total += 1
        if isinstance(item, str):
            total += len(item) // 20
        elif isinstance(item, list):
            pending += item
        elif isinstance(item, dict):
            pending += item.keys()
            pending += item.values()
    return total
