from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.scoring.strict_json import NotStrictJson, first_value, inside_fence, read

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def refusal(text: str) -> tuple[str, str]:
    with pytest.raises(NotStrictJson) as error:
        read(text)
    return error.value.error_type, str(error.value)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "empty"), (" \n", "empty"), ("{", "not_json"), ("{'a': 1}", "not_json"), ("{\"a\": 1,}", "not_json"),
        ("[1 2]", "not_json"), ("\ufeff{}", "not_json"), ("\u00a0{}", "not_json"), ("01", "trailing_text"),
        ("+1", "not_json"), (".5", "not_json"), ("1.", "trailing_text"), ("True", "not_json"), ("'a'", "not_json"),
        ('"a\nb"', "not_json"), ('"\\x"', "not_json"), ("// c\n1", "not_json"), ("{} {}", "trailing_text"),
        ("{} done", "trailing_text"), ("NaN", "not_finite"), ("[Infinity]", "not_finite"), ("-Infinity", "not_finite"),
        ('{"a": 1, "a": 1}', "duplicate_key"), ('[{"b": {"a": 1, "\\u0061": 2}}]', "duplicate_key"),
        ('"\\ud800"', "lone_surrogate"), ('"\\udc00\\ud800"', "lone_surrogate"), ('{"\\udfff": 1}', "lone_surrogate"),
        ('"\ud800"', "lone_surrogate"), ("9" * 401, "number_too_long"), ("-" + "9" * 5000, "number_too_long"),
        ("0." + "1" * 401, "number_too_long"), ("1e400", "number_too_long"), ("[-1E+999]", "number_too_long"),
        ("[" * 65 + "]" * 65, "too_deep"), ('{"a":' * 100_000, "too_deep"), ("[" * 100_000, "too_deep"),
        ('"' + "x" * 2**20 + '"', "too_large"), ('"' + "é" * 600_000 + '"', "too_large"),
    ],
)  # fmt: skip
def test_what_is_not_strict_json_is_refused_with_its_word(text, word):
    start = time.process_time()
    assert refusal(text)[0] == word
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    "text",
    ["{}", " [1]\r\n\t", "0", "-0", "1e5", "1E-400", '"\\ud83d\\ude00"', '"\\u0000"', "[" * 64 + "]" * 64, "9" * 400,
     '"[[["', '["\\"[", "{{"]', '"' + "[" * 1000 + '"', '"' + "9" * 1000 + '"', '{"a": 1, "A": 1}', "1.7e308"],
)  # fmt: skip
def test_what_json_allows_is_read_as_python_reads_it(text):
    assert read(text) == json.loads(text)


def test_the_reason_says_where():
    assert refusal('{"a": 1,\n "b" 2}')[1] == "Expecting ':' delimiter at line 2 column 6"
    assert refusal('{"key": 1, "key": 2}')[1] == "the key 'key' twice in one object"


@given(JSON, st.sampled_from([None, 2]), st.booleans())
def test_every_json_value_is_read_back(value, indent, ascii_only):
    try:
        text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
        text.encode()
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return
    assert read(text) == value


@given(st.text(st.characters()) | st.text('{}[]",:\\u0d8019eE+-. truefalsn\n', max_size=40))
def test_reading_never_fails_otherwise_and_never_takes_more_than_python(text):
    try:
        value = read(text)
    except NotStrictJson:
        return
    assert json.loads(text) == value
    assert not (isinstance(value, float) and not math.isfinite(value))


UNCLOSED = (
    '"' * 300_000,
    '\\"' * 300_000,
    '{"\\' * 200_000,
    '["' * 100_000,
    '[{"a":"' * 90_000,
    "[" + '\\"' * 90_000 + "\\",
)


@pytest.mark.parametrize("text", UNCLOSED)
def test_unclosed_strings_cost_linear_time(text):
    start = time.process_time()
    inside_fence("```\n" + " " * 300_000 + text)
    refusal(text)
    first_value(text)
    inside_fence("```\n" + text)
    inside_fence("a" + "``` " * 100_000 + text, in_text=True)
    inside_fence("a```" + " " * 300_000 + text + "```", in_text=True)
    assert time.process_time() - start < 10


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1} and so on', '{"a": 1}'), (' [1, "]"] x', '[1, "]"]'), ("true.", "true."), ('"a" b', '"a"'),
        ("17 apples", "17"), ("{ no end", "{ no end"), ('{"a": "}\\"}"} }', '{"a": "}\\"}"}'), ("", ""),
    ],
)  # fmt: skip
def test_the_first_value_ends_where_its_brackets_close(text, value):
    assert first_value(text) == value


@pytest.mark.parametrize(
    ("text", "inside"),
    [
        ("```json\n{}\n```", "{}"), ("\n```\n{}\n```\n", "{}"), ("{}", "{}"), ("```json\n{}", "```json\n{}"),
        ("```json {}```", "{}"), ("```json\n```", ""), ("```", "```"), ("``` {}", "``` {}"), ("```json{}```", "{}"),
        ("so: ```json\n{}\n```", "so: ```json\n{}\n```"), ("```json\n{}\n``` done", "```json\n{}\n``` done"),
    ],
)  # fmt: skip
def test_a_fence_is_opened_only_when_it_is_all_there_is(text, inside):
    assert inside_fence(text) == inside
