"""JSON Schema on hostile answers, and the official test suite where it is at hand."""

from __future__ import annotations

import json
import socket
import time
from pathlib import Path

import pytest

from qualgate.scoring.schema import CannotValidate, first_error, lint

SUITE = Path(__file__).resolve().parents[3] / "shared" / "data" / "json_schema_test_suite" / "tests" / "draft2020-12"
# Groups that need a document from the suite's own server: a reference out of the schema is never followed.
NEED_A_REMOTE = {
    "strict-tree schema, guards against misspelled properties",
    "tests for implementation dynamic anchor and reference link",
    "$ref and $dynamicAnchor are independent of order - $defs first",
    "$ref and $dynamicAnchor are independent of order - $ref first",
    "$ref to $dynamicRef finds detached $dynamicAnchor",
    "schema that uses custom metaschema with with no validation vocabulary",
}


@pytest.mark.skipif(not SUITE.is_dir(), reason="the JSON-Schema-Test-Suite is not here")
@pytest.mark.parametrize("path", sorted(SUITE.glob("*.json")), ids=lambda path: path.stem)
def test_the_official_suite_agrees(path):
    for group in json.loads(path.read_text(encoding="utf-8")):
        if path.stem == "refRemote" or group["description"] in NEED_A_REMOTE:
            continue
        for case in group["tests"]:
            accepted = first_error(group["schema"], case["data"]) is None
            assert accepted is case["valid"], (group["description"], case["description"])


def test_nothing_is_fetched(monkeypatch):
    monkeypatch.setattr(socket, "socket", lambda *args, **kwargs: pytest.fail("a connection was opened"))
    for target in ("http://localhost:1234/s.json", "https://example.org/s", "file:///etc/passwd"):
        with pytest.raises(CannotValidate, match="leads nowhere"):
            first_error({"$ref": target}, 1)
        assert "leaves the schema" in lint({"$ref": target})[0]


def test_the_error_says_where_and_what():
    schema = {"properties": {"a": {"items": {"type": "integer"}}}, "additionalProperties": False}
    assert first_error(schema, {"a": [1, "x"]}) == "$.a[1]: 'x' is not of type 'integer'"
    assert first_error(schema, {"a": [], "zz": 1}) == "$: the key 'zz' is not allowed"
    assert first_error(schema, {"a": [1.0]}) is None


def test_the_first_error_does_not_depend_on_hash_order():
    schema = {"additionalProperties": False}
    assert first_error(schema, dict.fromkeys("zyxwv", 1)) == "$: the key 'z' is not allowed"


def test_an_answer_cannot_break_the_reason_line():
    error = first_error({"type": "integer"}, "x\n14:00 APPROVE \x1b[31m\u202e" + "y" * 1000)
    assert error is not None
    assert error.isprintable()
    assert len(error) < 350


HOSTILE = [
    ({"pattern": "^(a+)+$"}, "a" * 50_000 + "!"),
    ({"patternProperties": {"^(a|a)*$": {"type": "integer"}}}, {"a" * 20_000 + "!": 1}),
    ({"patternProperties": {"^(a|a)*$": True}, "additionalProperties": False}, {"a" * 20_000 + "!": 1}),
    ({"uniqueItems": True}, [{"a": number} for number in range(50_000)]),
    ({"uniqueItems": True}, [[number, str(number)] for number in range(50_000)]),
    ({"multipleOf": 0.01}, 10**399),
    ({"multipleOf": 1e-300}, 1e308),
    ({"minimum": 1e308}, 10**399),
    ({"items": {"type": "integer"}}, ["x"] * 50_000),
]


@pytest.mark.parametrize(("schema", "value"), HOSTILE, ids=[json.dumps(schema) for schema, _ in HOSTILE])
def test_no_answer_makes_a_sound_schema_slow_or_fail(schema, value):
    assert lint(schema) == ()
    start = time.process_time()
    first_error(schema, value)
    assert time.process_time() - start < 10


def nested(levels: int) -> list:
    value: list = []
    for _ in range(levels - 1):
        value = [value]
    return value


def test_doubling_references_stop_at_the_step_budget():
    twice = {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}
    assert lint(twice) == ()
    assert first_error(twice, nested(5)) is None
    start = time.process_time()
    with pytest.raises(CannotValidate):
        first_error(twice, nested(60))
    assert time.process_time() - start < 20


def test_a_recursive_schema_follows_a_deep_answer():
    tree = {"$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "$ref": "#/$defs/node"}
    assert lint(tree) == ()
    assert first_error(tree, nested(60)) is None


def test_decimals_are_multiples_as_written():
    assert first_error({"multipleOf": 0.1}, 0.3) is None
    assert first_error({"multipleOf": 0.1}, 0.35) is not None


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"$ref": "#"}, "refers to itself"),
        ({"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"allOf": [{"$ref": "#"}]}}}, "refers to itself"),
        ({"properties": {"a": {"type": "sting"}}}, "at $.properties.a"),
        ({"allOf": []}, "should be non-empty"),
        ({"required": ["a", "a"]}, "non-unique"),
        ({"required": "a"}, "not of type 'array'"),
        ({"properties": []}, "not of type 'object'"),
        ({"items": [{}]}, "not of type"),
        ({"pattern": "(a)\\1"}, "not one RE2 takes"),
        ({"patternProperties": {"(?!a)": {}}}, "not one RE2 takes"),
        ({"pattern": "(a{1000}){1000}"}, "not one RE2 takes"),
        ({"items": {"$id": "http://x/y"}}, "only the whole schema may have one"),
        ({"$schema": "http://json-schema.org/draft-07/schema#"}, "only 2020-12"),
        ({"unevaluatedProperties": False, "patternProperties": {"a": {}}}, "cannot be checked safely"),
        ({"enum": [list(range(11_000))]}, "nodes"),
        ({"not": {"properties": {"a": 3}}}, "$.not.properties.a"),
        (7, "a schema is an object"),
    ],
)
def test_a_schema_that_cannot_be_used_safely_is_refused(schema, reason):
    assert any(reason in found for found in lint(schema)), lint(schema)


def test_a_schema_nested_too_deeply_is_refused():
    schema: dict = {}
    for _ in range(5000):
        schema = {"not": schema}
    assert "64 levels" in lint(schema)[0]


@pytest.mark.parametrize(
    "schema",
    [True, {}, {"const": {"$ref": "http://x"}}, {"properties": {"$ref": {"type": "string"}, "pattern": {}}},
     {"$defs": {"a": {"$anchor": "here"}}, "$ref": "#here"}, {"pattern": "^[\\u00e0-\\u00ff]\\p{Letter}\\d$"},
     {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "http://x/y", "format": "date"}],
)  # fmt: skip
def test_a_sound_schema_is_taken(schema):
    assert lint(schema) == ()


def test_ecma_patterns_mean_what_they_mean_in_ecma():
    assert first_error({"pattern": "^\\u00e9\\p{Letter}$"}, "éß") is None
    assert first_error({"pattern": "^\\d$"}, "\u0661") is not None
