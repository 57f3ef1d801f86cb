"""`unevaluatedProperties` and `unevaluatedItems`: what no schema that applies in place speaks of.

A schema that a reference leads to, or a part that names a draft of its own, is read by the keywords of its own draft,
as the JSON-Schema-Test-Suite has it of drafts that refer to each other: draft 7's `items` of several schemas speaks of
as many items, its `dependencies` apply in place, beside its `$ref` nothing stands, and a keyword that came later is no
keyword there. jsonschema reads all of them by the draft that asks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from jsonschema.exceptions import ValidationError
from referencing.jsonschema import lookup_recursive_ref, specification_with

from qualgate.scoring.schema.keywords import charge, pattern_matches


def properties(validator: Any, rest: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """The keyword `unevaluatedProperties`."""
    if isinstance(instance, dict):
        spoken_of = _keys(_without(validator, schema, "unevaluatedProperties"), instance)
        for key, value in instance.items():
            if key not in spoken_of:
                if rest is False:
                    yield ValidationError(f"the key {key!r} is not allowed")
                else:
                    yield from validator.descend(value, rest, path=key)


def items(validator: Any, rest: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """The keyword `unevaluatedItems`."""
    if isinstance(instance, list):
        spoken_of = _places(_without(validator, schema, "unevaluatedItems"), instance)
        for place, value in enumerate(instance):
            if place not in spoken_of:
                if rest is False:
                    yield ValidationError(f"the item {value!r} is not allowed")
                else:
                    yield from validator.descend(value, rest, path=place)


def _without(validator: Any, schema: dict[str, Any], keyword: str) -> Any:
    return validator.evolve(schema={key: value for key, value in schema.items() if key != keyword})


def _keys(validator: Any, instance: dict[str, Any]) -> set[str]:
    """Return the keys of `instance` that the validator's schema, or one that applies in place, evaluates."""
    schema = _read(validator)
    charge(1 + len(schema) + len(instance))
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return set(instance)  # what they refuse is refused by them
    spoken_of = set(schema.get("properties", {}).keys() & instance.keys())
    for source in schema.get("patternProperties", ()):
        spoken_of |= {key for key in instance if pattern_matches(source, key)}
    return spoken_of.union(*(_keys(part, instance) for part in _in_place(validator, schema, instance)))


def _places(validator: Any, instance: list[Any]) -> set[int]:
    """Return the indices of `instance` whose items the validator's schema evaluates, likewise."""
    schema = _read(validator)
    charge(1 + len(schema) + len(instance))
    if "unevaluatedItems" in schema:
        return set(range(len(instance)))
    listed, rest = ("prefixItems", "items") if "prefixItems" in validator.VALIDATORS else ("items", "additionalItems")
    first = schema.get(listed, [])
    if not isinstance(first, list) or (rest in schema and (rest == "items" or listed in schema)):
        return set(range(len(instance)))  # additionalItems without items is ignored
    spoken_of = set(range(min(len(first), len(instance))))
    if "contains" in schema and listed == "prefixItems":  # before 2020-12 it spoke of none
        spoken_of |= {at for at, item in enumerate(instance) if _accepts(validator, item, schema["contains"])}
    return spoken_of.union(*(_places(part, instance) for part in _in_place(validator, schema, instance)))


def _read(validator: Any) -> dict[str, Any]:
    """The keywords of the validator's schema that its draft knows."""
    schema, known = validator.schema, validator.VALIDATORS
    if not isinstance(schema, dict):
        return {}
    if "$ref" in schema and "unevaluatedItems" not in known:  # drafts up to 7 ignore what stands beside it
        return {"$ref": schema["$ref"]}
    return {key: value for key, value in schema.items() if key in known or key in ("then", "else")}


def _in_place(validator: Any, schema: dict[str, Any], instance: Any) -> Iterator[Any]:
    """A validator of each schema that applies to `instance` itself and accepts it."""
    parts = [part for key in ("allOf", "anyOf", "oneOf") for part in schema.get(key, ())]
    if isinstance(instance, dict):
        on_keys = [*schema.get("dependentSchemas", {}).items(), *schema.get("dependencies", {}).items()]
        parts += [part for key, part in on_keys if key in instance and not isinstance(part, list)]
    if "if" in schema:
        holds = _accepts(validator, instance, schema["if"])
        parts += [schema["if"]] if holds else []
        parts += [schema[branch] for branch in (("then",) if holds else ("else",)) if branch in schema]
    for part in parts:
        if isinstance(part, dict) and _accepts(validator, instance, part):
            resource = specification_with(validator.META_SCHEMA["$schema"]).create_resource(part)
            yield validator.evolve(schema=part, _resolver=validator._resolver.in_subresource(resource))
    for key in ("$ref", "$dynamicRef", "$recursiveRef"):
        if key in schema:
            resolver = validator._resolver
            target = lookup_recursive_ref(resolver) if key == "$recursiveRef" else resolver.lookup(schema[key])
            yield validator.evolve(schema=target.contents, _resolver=target.resolver)


def _accepts(validator: Any, instance: Any, schema: Any) -> bool:
    return next(iter(validator.descend(instance, schema)), None) is None


KEYWORDS = {"unevaluatedProperties": properties, "unevaluatedItems": items}
