"""A variant's tokenizer is held against its baseline's by the tokens that it makes, and by its other files."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from qualgate import refmodel
from qualgate.errors import UsageError
from qualgate.pipeline.checks import check_same_question
from qualgate.pipeline.folder_notes import folder_notes
from qualgate.quant.model_folder import read_model_folder
from qualgate.records import ArmSpec
from tests.quant.agreement.shipped import CONFIG, TOKENIZER, edited

FILE = "tokenizer.json"
OWN = json.loads((refmodel.PATH / FILE).read_text())
DIGITS = {"type": "Digits", "individual_digits": True}


def sequence(*steps: dict[str, Any]) -> dict[str, Any]:
    return {FILE: {"pre_tokenizer": {"type": "Sequence", "pretokenizers": list(steps)}}}


def settings(**keys: Any) -> dict[str, Any]:
    return {TOKENIZER: keys}


ADDS_BOS = {
    "type": "TemplateProcessing", "special_tokens": {}, "pair": [],
    "single": [{"SpecialToken": {"id": "<|im_start|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
}  # fmt: skip
BYTES = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
LLAMA_BOS = {FILE: {"post_processor": ADDS_BOS}, TOKENIZER: {"tokenizer_class": "LlamaTokenizer"}}
LONG = {FILE: {"normalizer": {"type": "Replace", "pattern": {"String": "a" * 500 + "b"}, "content": ""}}}
CASES = {  # baseline, variant, what is said
    "places of tokens in the text": (sequence(BYTES), sequence({**BYTES, "trim_offsets": False}), ""),
    "a sequence of one step": (sequence(BYTES), {FILE: {"pre_tokenizer": BYTES}}, ""),
    "affixes that are empty": ({}, {FILE: {"model": {**OWN["model"], "end_of_word_suffix": ""}}}, ""),
    "a token for padding": ({}, settings(pad_token="<|im_end|>"), ""),
    "no token for padding": ({}, settings(pad_token=None), ""),
    "a new token for padding": ({}, settings(pad_token="<|new|>"), f"pad_token of {TOKENIZER} is <|new|> against"),
    "switches that are off": (
        {}, settings(use_default_system_prompt=False, add_prefix_space=False, legacy=False, sp_model_kwargs={}), "",
    ),
    "notes of byte-level classes": ({}, settings(errors="replace", vocab_size=9), ""),
    "bytes that are no text": ({}, settings(errors="ignore"), "errors of"),
    "a space before a text, or none": (
        settings(tokenizer_class="LlamaTokenizer"), settings(tokenizer_class="LlamaTokenizer", add_prefix_space=False),
        "add_prefix_space of",
    ),
    "a flag that tokenizer.json says too": (
        {**LLAMA_BOS, TOKENIZER: {**LLAMA_BOS[TOKENIZER], "add_bos_token": True, "add_eos_token": False}},
        {**LLAMA_BOS, TOKENIZER: {"tokenizer_class": "TokenizersBackend"}}, "",
    ),
    "a flag against tokenizer.json": (LLAMA_BOS, LLAMA_BOS | settings(add_bos_token=False), "add_bos_token of"),
    "a class that is not read, of Mistral": (
        {CONFIG: {"model_type": "mistral"}, **settings(tokenizer_class="GPT2Tokenizer")},
        {CONFIG: {"model_type": "mistral"}, **settings(tokenizer_class="TokenizersBackend")}, "",
    ),
    "a class that makes its own steps": (
        {}, settings(tokenizer_class="GPT2Tokenizer"), "tokenizer_class of tokenizer_config.json is GPT2Tokenizer",
    ),
    "a step less": (
        sequence(DIGITS, BYTES), sequence(BYTES), "pre_tokenizer[0] of tokenizer.json is {'type': 'ByteLevel'",
    ),
    "another kind of step": (sequence(BYTES), sequence({**BYTES, "use_regex": False}), "pre_tokenizer[0].use_regex of"),
    "a normalizer": ({}, {FILE: {"normalizer": {"type": "NFC"}}}, "normalizer of tokenizer.json is [{'type': 'NFC'}]"),
    "the end of a long text": (
        LONG, {FILE: {"normalizer": {**LONG[FILE]["normalizer"], "pattern": {"String": "a" * 500 + "c"}}}},
        f"normalizer[0].pattern.String of tokenizer.json is …{'a' * 40}c against …{'a' * 40}b",
    ),
    "an id of 5000 digits": ({}, settings(added_tokens_decoder={"9" * 5000: {"content": "x"}}), "added_tokens_decoder"),
    "files that agree": ({"merges.txt": "a b\n"}, {"merges.txt": "#version: 0.2\na b"}, ""),
    "other pieces": ({"tokenizer.model": "x"}, {"tokenizer.model": "y"}, "tokenizer.model in"),
    "other added tokens": ({"added_tokens.json": {"a": 7}}, {"added_tokens.json": {"a": 8}}, "added_tokens.json in"),
    "another vocabulary": ({"vocab.json": {"a": 7}}, {"vocab.json": {"a": 8}}, "vocab.json in"),
    "other merges": ({"merges.txt": "a b"}, {"merges.txt": "a c"}, "merges.txt in"),
    "another tekken.json": ({"tekken.json": {"a": 7}}, {"tekken.json": {}}, "tekken.json in"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_what_makes_other_tokens_is_refused_by_its_innermost_key_and_nothing_else(tmp_path, name):
    baseline, variant, message = CASES[name]
    ours, theirs = (
        read_model_folder(edited(tmp_path / arm, edits), hashed=False)
        for arm, edits in (("variant", variant), ("baseline", baseline))
    )
    if not message:
        return check_same_question(ArmSpec(name="v", model=""), ours, theirs)
    with pytest.raises(UsageError, match=re.escape(message)):
        check_same_question(ArmSpec(name="v", model=""), ours, theirs)


def test_files_that_one_folder_alone_holds_beside_tokenizer_json_are_told(tmp_path):
    folders = [
        (arm, read_model_folder(edited(tmp_path / arm, edits), hashed=False))
        for arm, edits in (("baseline", {"tokenizer.model": "x", "vocab.json": {}}), ("v", {"vocab.json": {}}))
    ]
    (line,) = folder_notes(folders)
    assert "tokenizer.model in the folder of baseline alone: " in line
    assert list(folder_notes(folders[1:])) == []
