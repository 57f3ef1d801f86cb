"""The JSON Schema keywords in which we part from jsonschema, and what each application of one costs.

Replaced are those that run Python's backtracking regexes, take quadratic time or depend on hash order. Every keyword
takes steps; OutOfSteps ends a validation that a cheap bound cannot promise to be short.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from fractions import Fraction
from typing import Any

from jsonschema.exceptions import ValidationError

from qualgate.scoring.json_value import identity, size
from qualgate.scoring.schema.patterns import backtracking, linear


class OutOfSteps(Exception):
    """The check takes more work than was allowed; nothing is known of the value."""


NOT_HERE = 2**40  # steps: more than any check has but that of a process that can be ended
steps_left: ContextVar[list[int]] = ContextVar("steps_left")  # of this check, a few microseconds each


def charge(steps: int) -> None:
    """Take `steps` off those of this check. OutOfSteps when none is left."""
    left = steps_left.get()
    left[0] -= steps
    if left[0] < 0:
        raise OutOfSteps


def pattern_matches(source: str, text: str) -> bool:
    """Return whether a pattern matches in `text`. Takes steps; a backtracking pattern runs only in a child."""
    if (compiled := linear(source)) is not None:
        charge(len(text) * compiled.programsize // 1000)
    else:
        charge(NOT_HERE)
        compiled = backtracking(source)
    return compiled.search(text) is not None


def _pattern(validator: Any, source: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, str) and not pattern_matches(source, instance):
        yield ValidationError(f"{instance!r} does not match {source!r}")


_ITS_OWN = frozenset({"$id", "id", "$ref", "$schema"})  # `id` is draft 4's


def _descend(validator: Any, value: Any, schema: Any, path: str | int) -> Iterable[ValidationError]:
    """Return the first error of `value` under `schema`, in a tuple, or none: validator.descend without a new validator.

    A schema that has no `$id` and names no draft resolves references and reads keywords as its parent does, so the
    parent's validator can check it.
    """
    if type(schema) is not dict or not _ITS_OWN.isdisjoint(schema):
        return validator.descend(value, schema, path=path)
    keywords = validator.VALIDATORS
    for name, parameter in schema.items():
        if (check := keywords.get(name)) is not None:
            for error in check(validator, parameter, value, schema) or ():
                error.path.appendleft(path)
                return (error,)
    return ()


_TYPES = {str: ("string",), int: ("integer", "number"), float: ("number",), bool: ("boolean",), dict: ("object",),
          list: ("array",), type(None): ("null",)}  # fmt: skip


def _type(validator: Any, expected: Any, instance: Any, schema: Any) -> Iterable[ValidationError]:
    """Check the keyword `type`: a type or a list of them. A float without a fraction is an integer."""
    names = (expected,) if isinstance(expected, str) else expected
    for name in _TYPES.get(type(instance), ()):
        if name in names:
            return ()
    if type(instance) is float and instance.is_integer() and "integer" in names:
        return ()
    return (ValidationError(f"{instance!r} is not of type {', '.join(map(repr, names))}"),)


def _type_of_draft_4(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterable[ValidationError]:
    """Check `type` by draft 4, in which 1.0 is no integer."""
    names = (wanted,) if isinstance(wanted, str) else wanted
    if type(instance) is float and "number" not in names:
        return (ValidationError(f"{instance!r} is not of type {', '.join(map(repr, names))}"),)
    return _type(validator, wanted, instance, schema)


def _items(validator: Any, rest: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, list):
        for index in range(len(schema.get("prefixItems", ())), len(instance)):
            yield from _descend(validator, instance[index], rest, index)


def _properties(validator: Any, properties: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for name, subschema in properties.items():
            if name in instance:
                yield from _descend(validator, instance[name], subschema, name)


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(instance, dict):
        for source, subschema in patterns.items():
            for key, value in instance.items():
                if pattern_matches(source, key):
                    yield from _descend(validator, value, subschema, key)


def _additional_properties(validator: Any, other_schema: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check the keyword `additionalProperties`: the keys that neither `properties` nor `patternProperties` names."""
    if not isinstance(instance, dict):
        return
    named, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key, value in instance.items():
        if key not in named and not any(pattern_matches(source, key) for source in patterns):
            if other_schema is False:
                yield ValidationError(f"the key {key!r} is not allowed")
            else:
                yield from _descend(validator, value, other_schema, key)


def _unique_items(validator: Any, wanted: bool, instance: Any, schema: Any) -> Iterator[ValidationError]:
    if wanted and isinstance(instance, list):
        charge(sum(size(item) for item in instance if isinstance(item, (list, dict))) // 4)
        if len({identity(item) for item in instance}) < len(instance):
            yield ValidationError("an item stands twice in the array")


def _multiple_of(validator: Any, step: float, instance: Any, schema: Any) -> Iterator[ValidationError]:
    # On the decimals as written: 0.3 is a multiple of 0.1, though its double is not.
    if validator.is_type(instance, "number") and Fraction(repr(instance)) % Fraction(repr(step)):
        yield ValidationError(f"{instance!r} is not a multiple of {step!r}")


# Formats that jsonschema checks in time linear in the text; all others are checked where they can be stopped.
_QUICK_FORMATS = {"date", "date-time", "time", "email", "idn-email", "ipv4", "ipv6", "uuid"}


def _format(validator: Any, name: str, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """Check the keyword `format` by the library, if formats are asserted.

    A value that makes the library's check fail with an exception is not of the format.
    """
    if validator.format_checker is None or not isinstance(instance, str):
        return
    if (check := validator.format_checker.checkers.get(name)) is None:
        return
    charge(len(instance) // 20 if name in _QUICK_FORMATS else NOT_HERE)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a pattern that Python will read otherwise one day
            fits = check[0](instance)
    except MemoryError:
        raise
    except Exception:  # as int() of too many digits, an import that idna puts off, a regex of a million brackets
        fits = False
    if not fits:
        yield ValidationError(f"{instance!r} is not of the format {name!r}")


_OURS = {
    "format": _format,
    "type": _type,
    "pattern": _pattern,
    "properties": _properties,
    "patternProperties": _pattern_properties,
    "additionalProperties": _additional_properties,
    "uniqueItems": _unique_items,
    "multipleOf": _multiple_of,
}
_OURS_SINCE_2020 = {"items": _items}
_OURS_OF_4 = {"type": _type_of_draft_4}


def _counted(keyword: Any) -> Any:
    """Return a keyword's check that first charges for its work, by the sizes of its parameter and the value."""

    def counting(validator: Any, parameter: Any, instance: Any, schema: Any) -> Any:
        """Charge for the sizes of parameter and value; then check the keyword."""
        steps = 1
        if type(parameter) is list or type(parameter) is dict:
            steps += len(parameter)
        if type(instance) is list or type(instance) is dict:
            steps += len(instance)
        charge(steps)
        return keyword(validator, parameter, instance, schema)

    return counting


def bounded(keywords: Mapping[str, Any]) -> dict[str, Any]:
    """A draft's keywords with ours in place of jsonschema's, all of them charged."""
    ours = _OURS | (_OURS_SINCE_2020 if "prefixItems" in keywords else {}) | ({} if "const" in keywords else _OURS_OF_4)
    return {name: _counted(ours.get(name, keyword)) for name, keyword in keywords.items()}
