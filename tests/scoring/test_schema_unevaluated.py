"""`unevaluatedProperties` and `unevaluatedItems` where a schema of another draft says what is spoken of."""

from __future__ import annotations

from qualgate.scoring.schema import first_error, lint
from tests.scoring.cases import table
from tests.tables import each_row


def asked(draft, part, part_of, keyword, by):
    """A schema of `draft` that refers to a part of another, or applies it in place."""
    part = {"$schema": part_of, **part}
    applied = {"$ref": "#/$defs/part"} if by == "reference" else {"allOf": [part]}
    return {"$schema": draft, **applied, keyword: False, "$defs": {"part": part, "a": {"properties": {"a": True}}}}


@each_row("by", ["reference", "part"])
@each_row(("draft", "part_of", "part", "taken", "refused"), table("schemas")["unevaluated"])
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
