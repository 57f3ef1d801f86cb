"""Drift at tool names, JSON keys, digits and the end of the turn."""

from __future__ import annotations

import json
import time
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from qualgate.pipeline.drift_places import marked_tokens, places, token_bytes, token_spans
from qualgate.refmodel import PATH
from tests.depth import examples


def found(text: str, kind: str, tools: tuple[str, ...] = ()) -> list[str]:
    return [text[start:stop] for start, stop in places(text, tools)[kind]]


def counted(tokens: list[bytes], text: str, *how) -> dict[str, list[int]]:
    """Kind of place → the numbers of the tokens that count for it."""
    marked = marked_tokens(tokens, text, *how)
    assert marked is not None
    return {kind: of_kind.nonzero()[0].tolist() for kind, of_kind in marked.items()}


CALL = '<tool_call>{"name": "get_weather", "arguments": {"city": "Oslo", "days": 3}}</tool_call>'


@pytest.mark.parametrize(
    ("text", "names"),
    [
        (CALL, ["get_weather"]),
        ('{"function" : "f.g-h", "parameters": {}}', ["f.g-h"]),
        ('{"name": "unknown_tool"}', ["unknown_tool"]),
        ("<function=get_weather>{}</function>", ["get_weather"]),
        ("[TOOL_CALLS] get_weather{}", ["get_weather"]),
        ("[get_weather(city='Oslo'), get_weather_now()]", ["get_weather", "get_weather_now"]),
        ("I will ask get_weather now, not_get_weather(), x.get_weather()", []),
    ],
)
def test_tool_names_are_found_where_tools_are_offered(text, names):
    assert found(text, "tool_name", ("get_weather", "get_weather_now")) == names
    assert found(text, "tool_name") == []


def test_keys_are_strings_before_a_colon():
    assert found(CALL, "json_key") == ["name", "arguments", "city", "days"]
    assert found('{"a \\" b" : 1, "c": "d: e", "f\n": "g', "json_key") == ['a \\" b', "c", "f\n"]
    assert found("no JSON: at all", "json_key") == []


INNER = st.integers() | st.text('a"\\:é', max_size=4)
OBJECT = st.dictionaries(st.text('k":\\', max_size=4), INNER | st.dictionaries(st.text('k":\\', max_size=4), INNER))


@examples(60)
@given(OBJECT)
def test_all_keys_of_any_json_are_found(value):
    keys: list[str] = []

    def walk(node):
        for key, inner in node.items() if isinstance(node, dict) else ():
            keys.append(key)
            walk(inner)

    walk(value)
    assert [json.loads(f'"{key}"') for key in found(json.dumps(value), "json_key")] == keys


def test_digits_are_runs_of_ascii_digits():
    assert found("3 of 12.50 and ٣", "digit") == ["3", "12", "50"]


# ------------------------------------------------------------------------------------------- tokens → text


@given(st.text(), st.data())
def test_tokens_cover_the_characters_they_hold_a_byte_of(text, data):
    whole = text.encode("utf-8", "surrogatepass")
    cuts = sorted(data.draw(st.lists(st.integers(0, len(whole)), max_size=8)))
    edges = [0, *cuts, len(whole)]
    tokens = [whole[a:b] for a, b in pairwise(edges)] + [b"<|im_end|>"]
    spans = token_spans(tokens, text)
    owner = [index for index, character in enumerate(text) for _ in character.encode("utf-8", "surrogatepass")]
    for span, (a, b) in zip(spans, pairwise(edges), strict=False):
        assert list(range(*span)) == sorted(set(owner[a:b]))
    assert spans[-1] == (len(text), len(text))


@pytest.mark.parametrize("tokens", [[b"ab"], [b"a", b"b", b"x"], [b"  ab", b"c"], [b"<s>", b"abc"], []])
def test_tokens_that_do_not_spell_the_text_say_nothing(tokens):
    assert token_spans(tokens, "abc") is None
    assert marked_tokens(tokens, "abc") is None


def test_bytes_of_the_reference_models_tokens_spell_its_text():
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(PATH / "tokenizer.json"))
    text = 'Ärger: {"naïve": "日本 🙂", "n": 12}\n\t'
    tokens = [token_bytes(token) for token in tokenizer.encode(text, add_special_tokens=False).tokens]
    spans = token_spans([*tokens, b"<|im_end|>"], text)
    assert spans is not None
    assert {index for span in spans for index in range(*span)} == set(range(len(text)))
    assert token_bytes("Ġthe") == b" the"
    assert token_bytes("<｜end｜>") == "<｜end｜>".encode()


# ------------------------------------------------------------------------------------------- drift


def test_each_token_counts_where_its_characters_lie():
    tokens = [b'{"na', b"me", b'":', b' "', b"f", b'", "n":', b" 1", b"2}", b"<end>"]
    text = '{"name": "f", "n": 12}'
    assert counted(tokens, text, ("f",)) == {
        "thought": [],
        "tool_name": [4],
        "json_key": [0, 1, 5],
        "digit": [6, 7],
        "end": [8],
        "elsewhere": [2, 3],
    }
    in_thought = counted(tokens, text, ("f",), [(1, 7)])  # `"name"`
    assert (in_thought["thought"], in_thought["elsewhere"]) == ([0, 1, 2], [3])


def test_an_answer_of_nothing_but_its_end_has_one_position():
    found = counted([b"<end>"], "")
    assert {kind: places for kind, places in found.items() if places} == {"end": [0]}


@pytest.mark.parametrize(
    "text",
    ['"\\"' * 500_000, '"name":"' * 200_000, "f(" * 200_000, '"' * 1_000_001, '"a"' + " " * 10**6, "1" * 10**6,
     '"name"' + " " * 10**6, "[TOOL_CALLS] " * 80_000, '{"a":' * 200_000],
)  # fmt: skip
def test_hostile_text_takes_linear_time(text):
    start = time.process_time()
    places(text, ("f", "g"))
    assert time.process_time() - start < 2


def test_tokens_of_a_sentencepiece_vocabulary_spell_their_text():
    """As Llama 2 and Mistral decode: the space before the first word is left out, a byte token is a byte."""
    text = 'Größe: {"n": 12}\n'
    tokens = ["▁", "Größe", ":", "▁{", '"', "n", '":', "▁", "1", "2", "}", "<0x0A>", "</s>"]
    spelled = [token_bytes(token, spaced=True) for token in tokens]
    spans = token_spans(spelled, text)
    assert spans is not None
    assert [text[start:stop] for start, stop in spans] == [
        "", "Größe", ":", " {", '"', "n", '":', " ", "1", "2", "}", "\n", ""
    ]  # fmt: skip
    marked = counted(spelled, text)
    del marked["elsewhere"]
    assert marked == {"thought": [], "tool_name": [], "json_key": [5], "digit": [8, 9], "end": [12]}
    assert token_spans([token_bytes(token) for token in tokens], text) is None
