from __future__ import annotations

import json
import math
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.scoring.strict_json import NotStrictJson, first_value, inside_fence, read
from tests.scoring.cases import table
from tests.tables import each_row

TEXTS = table("strict_json")

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=4), inner, max_size=4),
    max_leaves=12,
)


def refusal(text: str) -> tuple[str, str]:
    with pytest.raises(NotStrictJson) as error:
        read(text)
    return error.value.error_type, str(error.value)


TOO_MUCH = {
    "number_too_long": ("9" * 401, "-" + "9" * 5000, "0." + "1" * 401),
    "too_deep": ("[" * 65 + "]" * 65, '{"a":' * 100_000, "[" * 100_000),
    "too_large": ('"' + "x" * 2**20 + '"', '"' + "é" * 600_000 + '"'),
    "lone_surrogate": ('"\ud800"',),
}
REFUSED = [*TEXTS["refused"], *((text, word) for word, texts in TOO_MUCH.items() for text in texts)]


@each_row(("text", "word"), REFUSED)
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


OPENED = {'"': 300_000, '\\"': 300_000, '{"\\': 200_000, '["': 100_000, '[{"a":"': 90_000}
UNCLOSED = [*(opened * times for opened, times in OPENED.items()), "[" + '\\"' * 90_000 + "\\"]


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


@pytest.mark.parametrize(("text", "value"), TEXTS["first"])
def test_the_first_value_ends_where_its_brackets_close(text, value):
    assert first_value(text) == value


@pytest.mark.parametrize(("text", "inside"), TEXTS["inside"])
def test_a_fence_is_opened_only_when_it_is_all_there_is(text, inside):
    assert inside_fence(text) == inside
