"""`unevaluatedProperties` and `unevaluatedItems` where a schema of another draft says what is spoken of."""

from __future__ import annotations

import pytest

from qualgate.scoring.schema import first_error, lint

TWENTY, NINETEEN = "https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema"
SIX, SEVEN = "http://json-schema.org/draft-06/schema#", "http://json-schema.org/draft-07/schema#"

A, B = {"properties": {"a": True}}, {"properties": {"b": True}}
IF_A = {"if": {"required": ["a"]}, "then": A}


def asked(draft, part, part_of, keyword, by):
    """A schema of `draft` that refers to a part of another, or applies it in place."""
    part = {"$schema": part_of, **part}
    applied = {"$ref": "#/$defs/part"} if by == "reference" else {"allOf": [part]}
    return {"$schema": draft, **applied, keyword: False, "$defs": {"part": part, "a": A}}


@pytest.mark.parametrize("by", ["reference", "part"])
@pytest.mark.parametrize(
    ("draft", "part_of", "part", "taken", "refused"),
    [
        (TWENTY, SEVEN, {"items": [True]}, [1], [1, 2]),
        (TWENTY, SEVEN, {"items": [True], "additionalItems": True}, [1, 2], None),
        (TWENTY, SEVEN, {"additionalItems": True}, [], [1]),
        (TWENTY, SEVEN, {"items": {"type": "integer"}}, [1, 2], ["a"]),
        (TWENTY, SEVEN, {"prefixItems": [True]}, [], [1]),
        (TWENTY, SEVEN, {"unevaluatedItems": True}, [], [1]),
        (TWENTY, SEVEN, {"contains": {"const": 1}, "items": [True]}, [1], [1, 1]),
        (TWENTY, TWENTY, {"contains": {"const": 1}, "prefixItems": [True]}, [1, 1], [1, 2]),
        (NINETEEN, TWENTY, {"prefixItems": [True]}, [1], [1, 2]),
        (NINETEEN, TWENTY, {"items": True}, [1, 2], None),
        (NINETEEN, NINETEEN, {"items": [True]}, [1], [1, 2]),
        (TWENTY, SEVEN, A, {"a": 1}, {"b": 1}),
        (TWENTY, SEVEN, {**A, "dependencies": {"a": B}}, {"a": 1, "b": 1}, {"b": 1}),
        (TWENTY, SEVEN, {**A, "dependencies": {"a": ["b"]}}, {}, {"a": 1, "b": 1}),
        (TWENTY, NINETEEN, {**A, "dependencies": {"a": B}}, {"a": 1}, {"a": 1, "b": 1}),
        (TWENTY, SEVEN, {**A, "dependentSchemas": {"a": B}}, {"a": 1}, {"a": 1, "b": 1}),
        (NINETEEN, TWENTY, {**A, "dependentSchemas": {"a": B}}, {"a": 1, "b": 1}, {"b": 1}),
        (TWENTY, SEVEN, {"unevaluatedProperties": True}, {}, {"a": 1}),
        (TWENTY, SEVEN, IF_A, {"a": 1}, {"b": 1}),
        (TWENTY, SIX, IF_A, {}, {"a": 1}),
        (TWENTY, SEVEN, {**B, "$ref": "#/$defs/a"}, {"a": 1}, {"b": 1}),
        (TWENTY, NINETEEN, {**B, "$ref": "#/$defs/a"}, {"a": 1, "b": 1}, {"c": 1}),
    ],
)  # fmt: skip
def test_a_part_speaks_by_the_keywords_of_its_own_draft(draft, part_of, part, taken, refused, by):
    keyword = "unevaluatedItems" if isinstance(taken, list) else "unevaluatedProperties"
    schema = asked(draft, part, part_of, keyword, by)
    assert lint(schema) == ()
    assert first_error(schema, taken) is None
    assert refused is None or first_error(schema, refused) is not None


def test_a_part_with_an_address_of_its_own_resolves_its_references_from_there():
    part = {"$id": "http://here/part", "$ref": "#/$defs/d", "$defs": {"d": {"properties": {"a": True}}}}
    schema = {"allOf": [part], "unevaluatedProperties": False, "$defs": {"d": {"properties": {"b": True}}}}
    assert first_error(schema, {"a": 1}) is None
    assert first_error(schema, {"b": 1}) == "$: the key 'b' is not allowed"


def test_an_item_that_nothing_speaks_of_is_named_or_held_to_the_rest():
    schema = {"prefixItems": [True], "unevaluatedItems": False}
    assert first_error(schema, [1, "x"]) == "$: the item 'x' is not allowed"
    assert first_error({**schema, "unevaluatedItems": {"type": "string"}}, [1, "x", 2]) == (
        "$[2]: 2 is not of type 'string'"
    )
