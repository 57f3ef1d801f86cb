"""The shipped tokenizer: any text survives it, digits stand alone, and tool markup stays visible."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from qualgate.refmodel import PATH
from tests.depth import examples

TOOL = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "weather in a city",
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string"},
                "days": {"type": "integer"},
                "unit": {"type": "string", "enum": ["c", "f"]},
            },
            "required": ["city"],
        },
    },
}


@pytest.fixture(scope="module")
def tokenizer() -> PreTrainedTokenizerFast:
    return AutoTokenizer.from_pretrained(PATH)


@examples(200)
@given(text=st.text(max_size=200))
def test_any_text_survives_a_round_trip(tokenizer: PreTrainedTokenizerFast, text: str):
    assert tokenizer.decode(tokenizer(text, add_special_tokens=False).input_ids) == text


def test_digits_are_single_tokens(tokenizer: PreTrainedTokenizerFast):
    assert [tokenizer.decode([i]) for i in tokenizer("2048+7").input_ids] == ["2", "0", "4", "8", "+", "7"]
    assert not [token for token in tokenizer.get_vocab() if sum(sign.isdigit() for sign in token) > 1]


def test_vocabulary_has_768_tokens_and_the_end_of_a_turn_ends_an_answer(tokenizer: PreTrainedTokenizerFast):
    assert len(tokenizer) == 768
    assert tokenizer.eos_token == "<|im_end|>"


def test_tool_markup_is_one_token_each_and_survives_skipping_special_tokens(tokenizer: PreTrainedTokenizerFast):
    for markup in ("<tools>", "</tools>", "<tool_call>", "</tool_call>"):
        ids = tokenizer(markup, add_special_tokens=False).input_ids
        assert len(ids) == 1
        assert tokenizer.decode(ids, skip_special_tokens=True) == markup


def test_chat_template_shows_tools_as_signatures(tokenizer: PreTrainedTokenizerFast):
    text = tokenizer.apply_chat_template(
        [{"role": "user", "content": "Hi"}], tools=[TOOL], add_generation_prompt=True, tokenize=False
    )
    assert text == (
        "<|im_start|>system\n<tools>\nget_weather(city: string, days?: integer, unit?: c|f): weather in a city\n"
        "</tools><|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    )


def test_chat_template_renders_a_conversation_without_tools(tokenizer: PreTrainedTokenizerFast):
    turns = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Yes"}]
    text = tokenizer.apply_chat_template(turns, tokenize=False)
    assert text == "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nYes<|im_end|>\n"
