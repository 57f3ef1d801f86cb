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


def properties(validator: Any, other_schema: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """The keyword `unevaluatedProperties`."""
    if isinstance(instance, dict):
        evaluated = _keys(_without(validator, schema, "unevaluatedProperties"), instance)
        for key, value in instance.items():
            if key not in evaluated:
                if other_schema is False:
                    yield ValidationError(f"the key {key!r} is not allowed")
                else:
                    yield from validator.descend(value, other_schema, path=key)


def items(validator: Any, other_schema: Any, instance: Any, schema: Any) -> Iterator[ValidationError]:
    """The keyword `unevaluatedItems`."""
    if isinstance(instance, list):
        evaluated = _places(_without(validator, schema, "unevaluatedItems"), instance)
        for index, value in enumerate(instance):
            if index not in evaluated:
                if other_schema is False:
                    yield ValidationError(f"the item {value!r} is not allowed")
                else:
                    yield from validator.descend(value, other_schema, path=index)


def _without(validator: Any, schema: dict[str, Any], keyword: str) -> Any:
    return validator.evolve(schema={key: value for key, value in schema.items() if key != keyword})


def _keys(validator: Any, instance: dict[str, Any]) -> set[str]:
    """Return the keys of `instance` that the validator's schema, or one that applies in place, evaluates."""
    schema = _read(validator)
    charge(1 + len(schema) + len(instance))
    if "additionalProperties" in schema or "unevaluatedProperties" in schema:
        return set(instance)  # what they refuse is refused by them
    evaluated = set(schema.get("properties", {}).keys() & instance.keys())
    for source in schema.get("patternProperties", ()):
        evaluated |= {key for key in instance if pattern_matches(source, key)}
    return evaluated.union(*(_keys(inner, instance) for inner in _in_place(validator, schema, instance)))


def _places(validator: Any, instance: list[Any]) -> set[int]:
    """Return the indices of `instance` whose items the validator's schema, or one that applies in place, evaluates."""
    schema = _read(validator)
    charge(1 + len(schema) + len(instance))
    if "unevaluatedItems" in schema:
        return set(range(len(instance)))
    listed, tail = ("prefixItems", "items") if "prefixItems" in validator.VALIDATORS else ("items", "additionalItems")
    first = schema.get(listed, [])
    if not isinstance(first, list) or (tail in schema and (tail == "items" or listed in schema)):
        return set(range(len(instance)))  # additionalItems without items is ignored
    evaluated = set(range(min(len(first), len(instance))))
    if "contains" in schema and listed == "prefixItems":  # before 2020-12 it spoke of none
        evaluated |= {index for index, item in enumerate(instance) if _accepts(validator, item, schema["contains"])}
    return evaluated.union(*(_places(inner, instance) for inner in _in_place(validator, schema, instance)))


def _read(validator: Any) -> dict[str, Any]:
    """Return the keywords of the validator's schema that its draft knows."""
    schema, known = validator.schema, validator.VALIDATORS
    if not isinstance(schema, dict):
        return {}
    if "$ref" in schema and "unevaluatedItems" not in known:  # drafts up to 7 ignore what stands beside it
        return {"$ref": schema["$ref"]}
    return {key: value for key, value in schema.items() if key in known or key in ("then", "else")}


def _in_place(validator: Any, schema: dict[str, Any], instance: Any) -> Iterator[Any]:
    """Yield a validator for each subschema that applies to `instance` itself and accepts it, references included."""
    subschemas = [subschema for key in ("allOf", "anyOf", "oneOf") for subschema in schema.get(key, ())]
    if isinstance(instance, dict):
        on_keys = [*schema.get("dependentSchemas", {}).items(), *schema.get("dependencies", {}).items()]
        subschemas += [subschema for key, subschema in on_keys if key in instance and not isinstance(subschema, list)]
    if "if" in schema:
        holds = _accepts(validator, instance, schema["if"])
        subschemas += [schema["if"]] if holds else []
        subschemas += [schema[branch] for branch in (("then",) if holds else ("else",)) if branch in schema]
    for subschema in subschemas:
        if isinstance(subschema, dict) and _accepts(validator, instance, subschema):
            resource = specification_with(validator.META_SCHEMA["$schema"]).create_resource(subschema)
            yield validator.evolve(schema=subschema, _resolver=validator._resolver.in_subresource(resource))
    for key in ("$ref", "$dynamicRef", "$recursiveRef"):
        if key in schema:
            resolver = validator._resolver
            target = lookup_recursive_ref(resolver) if key == "$recursiveRef" else resolver.lookup(schema[key])
            yield validator.evolve(schema=target.contents, _resolver=target.resolver)


def _accepts(validator: Any, instance: Any, schema: Any) -> bool:
    return next(iter(validator.descend(instance, schema)), None) is None


KEYWORDS = {"unevaluatedProperties": properties, "unevaluatedItems": items}
