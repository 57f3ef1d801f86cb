"""Each draft by its `$schema`, and `format` where it is asserted: as the jsonschema library has them."""

from __future__ import annotations

import contextlib
import random
import time
import warnings
from collections.abc import Mapping

import jsonschema
import pytest

from qualgate.evalsets import sets
from qualgate.records import Case, Evalset
from qualgate.records.identity import canonical_json
from qualgate.scoring.registry import find
from qualgate.scoring.schema import CannotValidate, first_error, lint, unread_formats
from qualgate.scoring.schema.check import _within
from qualgate.scoring.schema.keywords import OutOfSteps
from tests.tables import each_row

DRAFTS = {
    "http://json-schema.org/draft-04/schema#": jsonschema.Draft4Validator,
    "http://json-schema.org/draft-06/schema#": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    "https://json-schema.org/draft/2020-12/schema": jsonschema.Draft202012Validator,
}
FOUR, SIX, SEVEN, NINETEEN, TWENTY = DRAFTS
IRI = {"iri", "iri-reference"}
MAYBE = ["2024-02-30", "2024-02-29", "2024-02-29T10:00:00Z", "10:00:00Z", "a@b", "ab", "http://x.org/a", "::1",
         "1.2.3.4",
         "256.1.1.1", "6f1f2a5e-9a3c-4c61-9f52-0d6f1a2b3c4d", "P1D", "/a/b", "0/a", "{x}", "a.org", "(", "", "-a-",
         "\u0661", "é.org", "http://é.org", "#x", "\ud800", "1" * 400]  # fmt: skip


def drawn(draw: random.Random, draft: str, levels: int = 2) -> dict[str, object]:
    """A schema of one draft, its words among those in which drafts differ."""
    old = draft in (FOUR, SIX, SEVEN)
    if draft != FOUR and draw.random() < 0.1:
        return {"const": draw.choice([1, "a", 1.0])}
    if levels == 0 or draw.random() < 0.3:
        return {"type": draw.choice(["integer", "number", "string", "null"])}
    part, other = drawn(draw, draft, levels - 1), drawn(draw, draft, levels - 1)
    limit = {"exclusiveMinimum": draw.choice([True, False]) if draft == FOUR else 1}
    return draw.choice(
        [
            {"minimum": 1, **limit},
            {"items": part},
            {"prefixItems": [part]} if draft == TWENTY else {"items": [part], "additionalItems": other},
            {"properties": {"a": part}, "additionalProperties": draw.choice([False, other])},
            {"dependencies": {"a": ["b"], "b": part}} if old else {"dependentSchemas": {"a": part}},
            {"anyOf": [part, other]},
            {"oneOf": [part, other], "enum": [1, "a", None, [1]]},
            {"if": part, "then": other} if draft not in (FOUR, SIX) else {"not": part},
            {"properties": {"a": {"$ref": "#/definitions/d", "minimum": 5}}},
            {"properties": {"a": part}, "unevaluatedProperties": False} if not old else {"maxProperties": 1},
            {"contains": part} if draft != FOUR else {"required": ["a"]},
        ]
    )  # fmt: skip


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_verdict_is_the_librarys_on_drawn_schemas(draft):
    draw, accepted, asked = random.Random(23), 0, 0
    values = [
        1,
        1.0,
        2.5,
        5,
        "a",
        None,
        True,
        [],
        [1],
        [1, "a"],
        ["a", 1.0],
        {},
        {"a": 1},
        {"a": "a", "b": 1},
        {"b": None},
    ]
    for _ in range(150):
        schema = {**drawn(draw, draft), "$schema": draft, "definitions": {"d": drawn(draw, draft, 0)}}
        theirs = DRAFTS[draft](schema)
        assert lint(schema) == (), schema
        for value in values:
            ours = first_error(schema, value) is None
            assert ours is theirs.is_valid(value), (schema, value)
            asked, accepted = asked + 1, accepted + ours
    assert 0.2 * asked < accepted < 0.9 * asked


@pytest.mark.parametrize("draft", DRAFTS)
def test_an_asserted_format_is_the_librarys_and_only_where_it_is_asserted(draft):
    checker, right, wrong = DRAFTS[draft].FORMAT_CHECKER, 0, 0
    for name in sorted(checker.checkers.keys() - IRI):
        schema = {"$schema": draft, "format": name}
        assert lint(schema, formats=True) == ()
        for text in MAYBE:
            assert first_error(schema, text) is None
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    theirs = checker.conforms(text, name)
            except Exception:  # it stumbles over what it should refuse
                theirs = False
            ours = first_error(schema, text, formats=True) is None
            assert ours is theirs, (name, text)
            right, wrong = right + ours, wrong + (not ours)
        assert first_error(schema, 7, formats=True) is None, "a format is of texts"
    assert right > 10
    assert wrong > 20


def test_every_format_that_a_draft_defines_can_be_checked():
    for name in ("date-time", "email", "hostname", "ipv4", "ipv6", "uri"):
        assert all(not unread_formats({"$schema": draft, "format": name}) for draft in DRAFTS)
    for name in ("date", "time", "regex", "uri-template", "json-pointer", "duration", "uuid"):
        assert unread_formats({"format": name}) == (), name
    assert unread_formats({"$schema": FOUR, "items": {"format": "uuid"}}) == ("uuid",)
    assert unread_formats({"properties": {"a": {"format": "int32"}, "b": {"format": "date"}}}) == ("int32",)
    assert unread_formats({"const": {"format": "int32"}}) == ()


@pytest.mark.parametrize("name", sorted(IRI))
def test_an_iri_is_refused_where_formats_are_asserted(name):
    assert "cannot be checked" in lint({"not": {"format": name}}, formats=True)[0]
    with pytest.raises(CannotValidate, match="cannot be checked"):
        first_error({"format": name}, "http://é.org", formats=True)


def test_a_format_without_its_checker_is_refused_not_waved_through(monkeypatch):
    from qualgate.scoring.schema.drafts import DRAFTS as OURS
    from qualgate.scoring.schema.linter import faults_of

    faults_of.cache_clear()
    monkeypatch.delitem(OURS[TWENTY].validator.FORMAT_CHECKER.checkers, "uri")
    assert "'uri' cannot be checked" in lint({"format": "uri"}, formats=True)[0]
    assert lint({"format": "uri"}) == ()
    faults_of.cache_clear()


HOSTILE = ["(" * 20_000, "a{99999999999999999999}", "(a+)+" * 2_000, "http://" + "a" * 100_000, "@" * 50_000,
           "::" + "0" * 50_000, "P" + "9" * 50_000 + "D", "{" * 20_000, "xn--" + "a" * 20_000, "1" * 50_000,
           "/" + "~" * 20_000, "a." * 20_000, "\ud800\0"]  # fmt: skip


@pytest.mark.proof
@pytest.mark.parametrize("name", sorted(jsonschema.Draft202012Validator.FORMAT_CHECKER.checkers.keys() - IRI))
def test_no_text_keeps_a_format_busy(name):
    for text in HOSTILE:
        start = time.process_time()
        with contextlib.suppress(CannotValidate):  # stopped for time or memory, as may be
            first_error({"format": name}, text, formats=True)
        assert time.process_time() - start < 5, "here; the work was another process's"


@pytest.mark.parametrize(
    "schema",
    [
        {"$schema": FOUR, "definitions": {"a": {"id": "#here", "type": "integer"}}, "items": {"$ref": "#here"}},
        {"$schema": SIX, "definitions": {"a": {"$id": "#here", "type": "integer"}}, "items": {"$ref": "#here"}},
        {"$schema": SEVEN, "definitions": {"a": {"$id": "#here", "type": "integer"}}, "items": {"$ref": "#here"}},
        {"$schema": NINETEEN, "$defs": {"a": {"$anchor": "here", "type": "integer"}}, "items": {"$ref": "#here"}},
        {"$schema": TWENTY, "$defs": {"a": {"$anchor": "here", "type": "integer"}}, "items": {"$ref": "#here"}},
    ],
)
def test_a_reference_finds_an_anchor(schema):
    assert first_error(schema, [1]) is None
    assert first_error(schema, ["a"]) == "$[0]: 'a' is not of type 'integer'"
    assert "leads nowhere" in lint({**schema, "items": {"$ref": "#there"}})[0]
    assert "leaves the schema" in lint({**schema, "items": {"$ref": "http://localhost/there"}})[0]


def test_a_draft_is_known_with_http_or_https_and_a_last_sign_or_none():
    for named in ("https://json-schema.org/draft-04/schema", "http://json-schema.org/draft-04/schema"):
        assert first_error({"$schema": named, "type": "integer"}, 1.0) is not None, "in draft 4, 1.0 is no integer"
    assert first_error({"$schema": "http://json-schema.org/draft/2019-09/schema#", "type": "integer"}, 1.0) is None


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"properties": {"a": True}}, "$.properties.a: True is no object"),
        ({"anyOf": [True]}, "not of type 'object'"),
        ({"exclusiveMinimum": 3}, "not of type 'boolean'"),
        ({"enum": []}, "should be non-empty"),
        ({"id": 5}, "not of type 'string'"),
        ({"items": {"$ref": "#/default"}, "default": True}, "what is no schema"),
    ],
)
def test_what_is_no_schema_of_draft_4_is_refused(schema, reason):
    assert reason in lint({"$schema": FOUR, **schema})[0], lint({"$schema": FOUR, **schema})


@pytest.mark.parametrize("draft", DRAFTS)
def test_an_id_that_is_no_text_is_refused(draft):
    key = "id" if draft == FOUR else "$id"
    for schema in ({key: 5}, {"not": {key: 5}}, {"items": {"$ref": "#/not"}, "not": {key: [5]}}):
        assert "not of type 'string'" in lint({"$schema": draft, **schema})[0], schema


def test_a_recursive_reference_without_end_is_refused():
    assert "refers to itself" in lint({"$schema": NINETEEN, "$recursiveRef": "#"})[0]
    tree = {"$schema": NINETEEN, "items": {"$recursiveRef": "#"}, "type": "array"}
    assert first_error(tree, [[[]], []]) is None
    assert first_error(tree, [[["a"]]]) == "$[0][0][0]: 'a' is not of type 'array'"


def judged(body: dict[str, object], text: str) -> object:
    score = find("json").function(
        Case(evalset="e", body=body), Evalset(name="e", version="1", sha256="", metrics=()), text
    )
    return score["json.schema"].value


def test_a_case_says_whether_its_formats_are_asserted():
    schema = {"format": "date"}
    assert judged({"schema": schema}, '"soon"') == judged({"schema": schema, "formats": "annotate"}, '"soon"') == 1
    assert judged({"schema": schema, "formats": "assert"}, '"soon"') == 0
    assert judged({"schema": schema, "formats": "assert"}, '"2026-11-25"') == 1


def written(folder, header: str, case: str):
    (folder / "s.yaml").write_text(f"name: s\nversion: 1\nmetrics: [json.schema]\n{header}", encoding="utf-8")
    (folder / "s.jsonl").write_text(case + "\n", encoding="utf-8")
    return folder / "s.yaml"


CASE = '{"id": "a", "prompt": "When?", "max_new_tokens": 8, "schema": {"format": "int32", "not": {"format": "date"}}}'


def test_a_set_says_it_for_all_its_cases_and_is_told_of_what_is_ignored(tmp_path):
    found = sets.read(written(tmp_path, "formats: assert\n", CASE))
    assert isinstance(found, Evalset)
    assert found.cases[0].body["formats"] == found.formats == "assert"
    assert [*sets.notes(found)] == [
        "case a: `schema` asks for the format 'int32', which its draft does not define: it is not checked"
    ]
    plain = sets.read(written(tmp_path, "", CASE))
    assert isinstance(plain, Evalset)
    assert plain.sha256 != found.sha256
    assert [*sets.notes(plain)] == []
    assert sets.added_beside(written(tmp_path, "formats: assert\n", CASE).with_suffix(".jsonl")) == {
        "formats": "assert"
    }


def test_formats_that_would_change_nothing_or_are_no_word_are_refused(tmp_path):
    path = written(tmp_path, "formats: asserted\n", CASE)
    assert "assert" in str(sets.check(path)[0])
    path.write_text("name: s\nversion: 1\nmetrics: [json.valid]\nformats: assert\n", encoding="utf-8")
    assert "`formats` is of `json.schema`" in str(sets.check(path)[0])
    path = written(tmp_path, "", CASE.replace('"schema"', '"formats": "yes", "schema"'))
    assert "`formats` must be one of assert, annotate; found 'yes'" in str(sets.check(path)[0])


# ------------------------------------------------------- a part that names its draft again is checked as all others are

NAMED_AGAIN = [
    lambda part: {"allOf": [part]},
    lambda part: {"not": {"not": part}},
    lambda part: {"if": True, "then": part} if part["$schema"] in (SEVEN, NINETEEN, TWENTY) else {"anyOf": [part]},
    lambda part: {"items": {"$ref": "#/definitions/p"}, "definitions": {"p": part}},
    lambda part: {"properties": {"p": {"$id": "p.json", "id": "p.json", **part}}},
]


def holding(shape: int, value: object) -> object:
    return [[value], {"p": value}][shape - 3] if shape >= 3 else value


@each_row("shape", range(len(NAMED_AGAIN)))
@each_row("draft", DRAFTS)
def test_a_part_that_names_its_draft_has_its_patterns_read_by_re2_and_its_work_counted(draft, shape):
    schema = {"$schema": draft, **NAMED_AGAIN[shape]({"$schema": draft, "pattern": r"^\p{L}+$"})}  # not one of Python's
    assert lint(schema) == ()
    assert first_error(schema, holding(shape, "ä")) is None
    assert first_error(schema, holding(shape, "7")) is not None
    hostile = {"$schema": draft, **NAMED_AGAIN[shape]({"$schema": draft, "pattern": "^(a|a)*$"})}
    start = time.process_time()
    assert first_error(hostile, holding(shape, "a" * 22 + "!")) is not None
    assert time.process_time() - start < 0.5
    counted = {"$schema": draft, **NAMED_AGAIN[shape]({"$schema": draft, "items": {"items": {"type": "integer"}}})}
    with pytest.raises(OutOfSteps):
        _within(500, canonical_json(counted), "{}", holding(shape, [[1] * 1000]), False)


def test_so_has_a_drafts_own_schema_that_is_referred_to():
    for draft in DRAFTS:
        schema = {"$schema": draft, "items": {"$ref": draft}}
        assert lint(schema) == ()
        with pytest.raises(OutOfSteps):
            _within(500, canonical_json(schema), "{}", [{"type": "integer"}] * 20, False)
        assert first_error(schema, [{"type": "integer"}, {"type": "nothing"}]) is not None


def test_a_dialect_of_ones_own_counts_too():
    used = {f"{TWENTY.removesuffix('schema')}vocab/{word}": True for word in ("core", "applicator", "validation")}
    remotes = {"http://x.org/d": {"$id": "http://x.org/d", "$schema": TWENTY, "$vocabulary": used}}
    schema = {"$schema": "http://x.org/d", "allOf": [{"$schema": "http://x.org/d", "pattern": r"^\p{L}+$"}]}
    assert first_error(schema, "ä", remotes) is None
    assert first_error(schema, "7", remotes) is not None


@each_row("draft", DRAFTS)
@each_row("other", DRAFTS)
def test_a_part_in_another_draft_is_read_as_that_draft_has_it(draft, other):
    def accepts(words: Mapping[str, object], value: object) -> bool:
        return first_error({"$schema": draft, "properties": {"p": {"$schema": other, **words}}}, {"p": value}) is None

    first = {"prefixItems" if other == TWENTY else "items": [{"type": "integer"}]}
    assert (accepts(first, [1, "a"]), accepts(first, ["a"])) == (True, False)
    assert accepts({"type": "integer"}, 1.0) is (other != FOUR)
    letters = {"pattern": r"^\p{L}+$"}
    assert (accepts(letters, "ä"), accepts(letters, "7")) == (True, False)
    of_schemas = {"$schema": draft, "items": {"$ref": other}}  # that draft's own schema
    assert first_error(of_schemas, [{"type": "integer"}]) is None
    assert first_error(of_schemas, [{"type": "nothing"}]) is not None


def test_a_part_that_names_no_draft_that_is_read_is_refused():
    for part in ({"not": {"$schema": "http://x.org/d"}}, {"items": {"$ref": "#/not"}, "not": {"$schema": "draft"}}):
        assert "is no draft that is read in a part of a schema" in lint({"$schema": TWENTY, **part})[0]
    assert "is not of type 'string'" in lint({"$schema": TWENTY, "not": {"$schema": 7}})[0]
    assert "is not of type 'boolean'" in lint({"not": {"$schema": FOUR, "exclusiveMinimum": 3}})[0]
    assert "not a regular expression" in lint({"not": {"$schema": FOUR, "additionalItems": {"pattern": "(?!a"}}})[0]
    assert "refers to itself" in lint({"$schema": TWENTY, "allOf": [{"$schema": NINETEEN, "$recursiveRef": "#"}]})[0]


@pytest.mark.parametrize(
    ("whole", "part", "valid"),
    [
        ("http://json-schema.org/draft-07/schema#", "https://json-schema.org/draft/2020-12/schema", False),
        ("https://json-schema.org/draft/2020-12/schema", "http://json-schema.org/draft-07/schema#", True),
        ("https://json-schema.org/draft/2020-12/schema", "https://json-schema.org/draft/2019-09/schema", False),
    ],
)
@pytest.mark.parametrize("inline", [True, False])
def test_what_stands_beside_a_reference_counts_by_the_draft_of_its_own_part(whole, part, valid, inline):
    """Up to draft 7 a reference stands alone, and its `$id` too is ignored there."""
    held = {"$schema": part, "$ref": "urn:texts", "maxLength": 2}
    texts = {"$id": "urn:texts", "type": "string"}
    where = {"allOf": [held]} if inline else {"allOf": [{"$ref": "#/definitions/held"}]}
    schema = {"$schema": whole, "definitions": {"held": held, "texts": texts}, **where}
    assert not lint(schema)
    assert (first_error(schema, "abcdef") is None) is valid
    assert first_error(schema, "ab") is None
    assert first_error(schema, 1) is not None
