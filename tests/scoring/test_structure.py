from __future__ import annotations

import json
from itertools import permutations

from hypothesis import given
from hypothesis import strategies as st

from qualgate.scoring import strict_json
from qualgate.scoring.structure import json_scores
from tests.scoring.cases import scored, table
from tests.tables import each_row

SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"], "additionalProperties": False}
BOTH = ("json.valid", "json.schema")


def verdicts(text: str, *lenient: str) -> tuple[bool | None, ...]:
    return tuple(found.verdict for found in scored({"schema": SCHEMA}, BOTH, text, lenient=lenient).values())


@each_row(("text", "lenient", "expected"), table("structure"))
def test_an_answer_is_valid_first_and_then_held_against_the_schema(text, lenient, expected):
    assert verdicts(text, *lenient) == tuple(expected)


MODES = ("code_fence", "trailing_text")
PIECES = ("```", "json", "\n", " ", "{", "}", "[", "]", '"a":', '"', "1", "true", ",", "Sure:", "\\", "NaN", "é")
ANSWERS = st.lists(st.sampled_from(PIECES), max_size=14).map("".join) | st.text()
DECLARED = st.sampled_from([(), *(order for size in (1, 2) for order in permutations(MODES, size))])


def strictly(text: str) -> bool | None:
    return json_scores({}, text)["json.valid"].verdict


@given(ANSWERS, DECLARED)
def test_lenient_accepts_only_a_part_of_the_answer_that_the_strict_reader_accepts(text, modes):
    found = json_scores({}, text, modes)["json.valid"]
    if not modes:
        assert found.verdict == strictly(text)
    if not found.verdict:
        return
    said = strict_json.unwrapped(text, modes)
    assert strictly(said)
    assert strictly(text) or "```" in text or "trailing_text" in modes  # without a declared wrapping, nothing is off
    starts = [start for start in range(len(text)) if text.startswith(said, start)]
    assert any(may_be_left_off(text[:start], text[start + len(said) :], modes) for start in starts)


def may_be_left_off(before: str, behind: str, modes: tuple[str, ...]) -> bool:
    if before.strip() and "code_fence" not in modes:
        return False
    return "trailing_text" in modes or behind.strip() in ("", "```")


@given(ANSWERS, DECLARED)
def test_the_order_of_declaration_does_not_matter_and_what_is_strict_json_stays_so(text, modes):
    assert strict_json.unwrapped(text, modes) == strict_json.unwrapped(text, modes[::-1])
    if strictly(text):
        assert json.loads(strict_json.unwrapped(text, modes)) == json.loads(text)


@given(
    ANSWERS,
    st.sampled_from(["```", "```json"]),
    st.sampled_from(["", "Sure: ", "Here `it` is:\n"]),
    st.sampled_from(["", " Hope this helps", "\n```py\nx = {}\n```"]),
)
def test_a_fence_is_worth_what_it_holds_and_text_around_it_nothing(inner, fence, before, behind):
    assert json_scores({}, f"{fence}\n{inner}\n```", ("code_fence",))["json.valid"].verdict == strictly(inner)
    if strictly(inner):
        answer = f"{before}{fence}\n{inner}\n```{behind}"
        found = json_scores({}, answer, MODES)["json.valid"]
        assert found.verdict
        assert json.loads(strict_json.unwrapped(answer, MODES)) == json.loads(inner)


def test_reasons_and_words():
    found = scored({"schema": SCHEMA}, BOTH, '{"n": "x"}')
    assert found["json.schema"].error_type == "schema"
    assert found["json.schema"].reason == "$.n: 'x' is not of type 'integer'"
    assert found["json.schema"].scorer == "json/5"
    assert scored({}, ("json.valid",), '{"a":1,"a":2}')["json.valid"].error_type == "duplicate_key"


def test_a_key_of_the_answer_cannot_break_the_reason_into_lines():
    schema = {"additionalProperties": {"type": "string"}}
    found = scored({"schema": schema}, ("json.schema",), '{"a\\n\\u001b[31mAPPROVE\\u202e": 1}')["json.schema"]
    assert found.verdict is False
    assert found.reason.isprintable()


def test_a_schema_that_cannot_be_used_gives_no_verdict_rather_than_a_wrong_one():
    found = scored({"schema": {"$ref": "#"}}, BOTH, "{}")
    assert found["json.valid"].verdict is True
    assert (found["json.schema"].value, found["json.schema"].verdict) == (None, None)
    assert found["json.schema"].error_type == "schema_unusable"


def test_an_answer_beyond_the_size_cap_is_not_made_valid_by_leaving_its_rest_away():
    found = scored({}, ("json.valid",), "{} " + "x" * 2**20, lenient=("trailing_text",))["json.valid"]
    assert (found.verdict, found.error_type) == (False, "too_long")
    assert json_scores({}, "{} " + "x" * 2**20, ("trailing_text",))["json.valid"].error_type == "too_large"


def test_a_check_that_is_stopped_gives_no_verdict(stopped):
    twice = {"allOf": [{"items": {"$ref": "#"}}, {"items": {"$ref": "#"}}]}
    found = json_scores({"schema": twice}, "[" * 60 + "]" * 60)["json.schema"]
    assert (found.value, found.verdict, found.error_type) == (None, None, "schema_unusable")
    assert found.reason == "the schema check was stopped: more than 1 s of work"
