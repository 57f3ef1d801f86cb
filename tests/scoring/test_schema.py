"""JSON Schema on hostile answers, and the official test suite where it is at hand."""

from __future__ import annotations

import contextlib
import json
import random
import socket
import time
from functools import reduce

import pytest

from qualgate.scoring.schema import CannotValidate, first_error, lint, quick
from tests.scoring.cases import table
from tests.tables import each_row
from tests.verification.references.schema_suite import DRAFTS, SUITE, schema_suite


@pytest.mark.skipif(not SUITE.is_dir(), reason="the JSON-Schema-Test-Suite is not here")
def test_the_official_suite_agrees():
    found = schema_suite()
    assert found["tests"] > 1_000
    assert found["differ"] == []


def test_nothing_is_fetched(monkeypatch):
    monkeypatch.setattr(socket, "socket", lambda *args, **kwargs: pytest.fail("a connection was opened"))
    for target in ("http://localhost:1234/s.json", "https://example.org/s", "file:///etc/passwd"):
        with pytest.raises(CannotValidate, match="leaves the schema"):
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


@pytest.mark.parametrize(
    ("source", "taken", "refused"),
    [(r"^(?!^[-+.]*$)[+-]?0*\d*\.?\d*$", "12.50", "12.5\n"), ("^.{1,2000}$", "x" * 2_000, "x" * 2_001),
     (r"^a\Z", "a", "a\n"), (r"(?<quote>['\"]).*\k<quote>", "'x'", "'x\""), (r"(?!x)^\d", "3", "\u0663"),
     (r"^(?=\p{Letter})", "\u00e9", "1"), (r"(?=a)\ba{1}", "a", "\u00e9 b"), (r"^(?!a)[\s{]$", "\u00a0", "b")],
)  # fmt: skip
def test_patterns_that_re2_lacks_are_matched_as_they_are_meant(source, taken, refused):
    assert lint({"pattern": source}) == ()
    assert first_error({"pattern": source}, taken) is None
    assert first_error({"pattern": source}, refused) is not None


def test_a_pattern_that_takes_too_long_to_match_is_no_verdict():
    with pytest.raises(CannotValidate, match="more than 1 s of work"):
        first_error({"pattern": "^(?=a)(a|aa)+(?!x)c$"}, "a" * 60)


HOSTILE = [
    ({"pattern": "^(a+)+$"}, "a" * 50_000 + "!"),
    ({"patternProperties": {"^(a|a)*$": {"type": "integer"}}}, {"a" * 20_000 + "!": 1}),
    ({"patternProperties": {"^(a|a)*$": True}, "additionalProperties": False}, {"a" * 20_000 + "!": 1}),
    ({"uniqueItems": True}, [{"a": number} for number in range(20_000)]),
    ({"uniqueItems": True}, [[number, str(number)] for number in range(20_000)]),
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


def test_doubling_references_are_stopped_after_a_second_of_work():
    twice = {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}
    assert lint(twice) == ()
    assert first_error(twice, nested(5)) is None
    start = time.process_time()
    with pytest.raises(CannotValidate, match="more than 1 s of work"):
        first_error(twice, nested(60))
    assert time.process_time() - start < 1  # here; the work was another process's


def test_a_large_answer_is_checked_in_the_other_process_with_the_same_outcome():
    schema = {"items": {"type": "object", "required": ["n"], "properties": {"n": {"pattern": "^x"}}}}
    rows = [{"n": "x" * 20} for _ in range(5_000)]
    assert first_error(schema, rows) is None
    assert first_error(schema, [*rows, {"n": "y"}]) == "$[5000].n: 'y' does not match '^x'"


def test_an_error_quoted_a_thousand_times_cannot_fill_the_memory():
    schema = {"anyOf": [{"allOf": [{"type": "string"}, {"maxItems": 0}]} for _ in range(1_000)]}
    value = [["x" * 1_000] * 1_000]
    start = time.process_time()
    with contextlib.suppress(CannotValidate):  # stopped for time or memory, as may be
        assert first_error(schema, value) is not None
    assert time.process_time() - start < 2


def test_a_recursive_schema_follows_a_deep_answer():
    tree = {"$defs": {"node": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "$ref": "#/$defs/node"}
    assert lint(tree) == ()
    assert first_error(tree, nested(60)) is None


def test_decimals_are_multiples_as_written():
    assert first_error({"multipleOf": 0.1}, 0.3) is None
    assert first_error({"multipleOf": 0.1}, 0.35) is not None


TOO_MUCH = [
    (reduce(lambda schema, _: {"not": schema}, range(5_000), {}), "64 levels"),
    ({"enum": [list(range(11_000))]}, "nodes"),
    ({"pattern": "a" * 3_000}, "a pattern of 3,000 characters"),
    ({"patternProperties": {f"[a-z]{{{n}}}": {} for n in range(100, 600)}}, "its patterns take"),
]


@each_row(("schema", "reason"), [*table("schemas")["refused"], *TOO_MUCH])
def test_a_schema_that_cannot_be_used_safely_is_refused(schema, reason):
    assert any(reason in found for found in lint(schema)), lint(schema)


@pytest.mark.parametrize(
    "schema",
    [{"items": {"$id": "http://x/y", "$anchor": "a", "$ref": "#a2", "$defs": {"b": {"$anchor": "a2"}}}},
     {"unevaluatedProperties": False, "patternProperties": {"a": {}}},
     {"$ref": "https://json-schema.org/draft/2020-12/schema"},
     {"$schema": "http://json-schema.org/draft-07/schema#", "items": [{}], "dependencies": {"a": ["b"], "c": {}}},
     True, {}, {"const": {"$ref": "http://x"}}, {"properties": {"$ref": {"type": "string"}, "pattern": {}}},
     {"$defs": {"a": {"$anchor": "here"}}, "$ref": "#here"}, {"pattern": "^[\\u00e0-\\u00ff]\\p{Letter}\\d$"},
     {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": "http://x/y", "format": "date"}],
)  # fmt: skip
def test_a_sound_schema_is_taken(schema):
    assert lint(schema) == ()


def test_ecma_patterns_mean_what_they_mean_in_ecma():
    assert first_error({"pattern": "^\\u00e9\\p{Letter}$"}, "éß") is None
    assert first_error({"pattern": "^\\d$"}, "\u0661") is not None
    assert first_error({"pattern": "^[a\\s]\\S\\cJ$"}, "\u00a0\u00e9\n") is None
    assert first_error({"pattern": "^\\S$"}, "\u2003") is not None


def test_the_draft_decides_what_a_keyword_means():
    schema = {"items": [{"type": "string"}], "additionalItems": False}
    assert "not a 2020-12 schema" in lint(schema)[0]
    seven = {"$schema": "http://json-schema.org/draft-07/schema#", **schema}
    assert first_error(seven, ["a"]) is None
    assert first_error(seven, ["a", "b"]) is not None
    assert first_error({**seven, "prefixItems": [{"type": "null"}]}, ["a"]) is None


def test_unevaluated_properties_see_patterns_and_are_read_by_re2():
    schema = {"patternProperties": {"^(a+)+$": True}, "unevaluatedProperties": {"type": "integer"}}
    assert first_error(schema, {"aaa": "x", "b": 1}) is None
    assert first_error(schema, {"a" * 30_000 + "!": "x"}) is not None
    assert first_error({**schema, "unevaluatedProperties": False}, {"b": 1}) == "$: the key 'b' is not allowed"


@pytest.mark.parametrize("target", [None, 3, "text", ["x"], [[1]], True])
def test_a_reference_to_what_is_no_schema_is_refused(target):
    for pointer in ("#/$defs/x", "#/$defs/x/0", "#/$defs/x/y"):
        reasons = lint({"$ref": pointer, "$defs": {"x": target}})
        assert (reasons == ()) is (target is True and pointer == "#/$defs/x"), (pointer, reasons)
        assert reasons == () or "$ref" in reasons[0] or "not a 2020-12 schema" in reasons[0]


@pytest.mark.parametrize("word", ["properties", "patternProperties", "$defs", "dependentSchemas"])
def test_a_list_is_no_schema_of_a_named_part(word):
    assert "neither object nor boolean" in lint({word: {"a": ["x"]}})[0]
    assert lint({"$schema": DRAFTS["draft7"], "dependencies": {"a": ["x"]}}) == ()


# The quick check may only accept, and only what the validator accepts. --------------------------------------------


def drawn_schema(draw: random.Random, levels: int = 3) -> object:
    """Mostly of the quick form, now and then with a keyword beyond it."""
    if draw.random() < 0.05:
        return draw.choice([True, False, {"minimum": 2}, {"const": 1}, {"type": ["string", "array"]}, {"not": {}}])
    kind = draw.choice(
        ["string", "integer", "number", "boolean", "null", "enum", "mixed", "any"]
        + ["object"] * 4 * (levels > 0)
        + ["array"] * 2 * (levels > 0)
    )
    schema: dict[str, object] = {"description": "d", "default": 3} if draw.random() < 0.3 else {}
    match kind:
        case "object":
            schema |= {"type": "object"}
            schema |= {
                "properties": {n: drawn_schema(draw, levels - 1) for n in draw.sample("abc", draw.randint(0, 3))}
            }
            schema |= {"required": draw.sample("abcd", draw.randint(0, 2))} if draw.random() < 0.6 else {}
            schema |= (
                {"additionalProperties": draw.choice([True, False, False, {"type": "string"}])}
                if draw.random() < 0.6
                else {}
            )
        case "array":
            schema |= {"type": "array", **({"items": drawn_schema(draw, levels - 1)} if draw.random() < 0.7 else {})}
            schema |= {"minItems": 1} if draw.random() < 0.1 else {}
        case "enum":
            schema |= {"enum": draw.choice([["x", "y"], ["1", 1, None], [True, "x"], [0]])}
            schema |= {"type": draw.choice(["string", "integer"])} if draw.random() < 0.4 else {}
        case "mixed":
            schema |= {"type": draw.sample(["string", "integer", "number", "boolean", "null"], draw.randint(1, 3))}
        case "any":
            pass
        case _:
            schema |= {"type": kind}
    return schema


def drawn_value(draw: random.Random, schema: object, levels: int = 3) -> object:
    """A value that often fits."""
    if not isinstance(schema, dict) or draw.random() < 0.1 or levels < 0:
        return draw.choice(["x", "", 1, 1.0, 1.5, 0, True, False, None, [], {}, [1], {"a": 1}, "1", -0.0, 10**30])
    kinds = schema.get("type", "any")
    match draw.choice(kinds) if isinstance(kinds, list) else kinds:
        case "object":
            named = schema.get("properties", {})
            names = {
                *(n for n in named if draw.random() < 0.8),
                *(n for n in schema.get("required", ()) if draw.random() < 0.9),
            }
            names |= {"z"} if draw.random() < 0.15 else set()
            return {name: drawn_value(draw, named.get(name, True), levels - 1) for name in sorted(names)}
        case "array":
            return [
                drawn_value(draw, schema.get("items", True), levels - 1)
                for _ in range(draw.choice([0, 1, 2, 3, 300] if draw.random() < 0.02 else [0, 1, 2, 3]))
            ]
        case "string":
            return draw.choice(schema.get("enum", ["x", "long text"]))
        case "integer":
            return draw.choice([3, 3.0, -1, True])
        case "number":
            return draw.choice([3, 3.5, float(2**60)])
        case "boolean":
            return draw.choice([True, False, 1])
        case "any" if "enum" in schema:
            return draw.choice([*schema["enum"], "q", 1.0, True])
    return None


def test_the_quick_check_accepts_only_what_the_validator_accepts():
    draw, quickly, both = random.Random(5), 0, 0
    for _ in range(700):
        schema = drawn_schema(draw)
        if lint(schema) or (check := quick(schema)) is None:
            continue
        for _ in range(4):
            value = drawn_value(draw, schema)
            accepted = first_error(schema, value) is None
            assert accepted or not check(value), (schema, value)
            quickly, both = quickly + check(value), both + accepted
    assert quickly > 0.8 * both > 500, "the quick check is of use: it sees most of what is right"


def test_the_quick_check_leaves_every_other_keyword_to_the_validator():
    objects = ({"minProperties": 1}, {"properties": {"a": {"const": 1}}}, {"properties": {"a": False}},
               {"additionalProperties": {}}, {"$schema": DRAFTS["draft7"]}, {"patternProperties": {}})  # fmt: skip
    others = ({"minimum": 1}, {"type": "string", "pattern": "a"}, {"$ref": "#"}, {"anyOf": [{}]}, False,
              {"type": "array", "prefixItems": [{}]}, {"type": "nonsense"}, [])  # fmt: skip
    for schema in (*({"type": "object", **part} for part in objects), *others):
        assert quick(schema) is None
