"""The tokens that end an answer: what each server reads, and arms whose servers would end answers elsewhere."""

from __future__ import annotations

import re

import pytest

from qualgate.errors import UsageError
from qualgate.pipeline.checks import check_same_question
from qualgate.pipeline.folder_notes import folder_notes
from qualgate.quant import tokenizer_files
from qualgate.quant.agreement.stop_tokens import READINGS
from qualgate.quant.model_folder import ModelFolder, read_model_folder
from qualgate.records import ArmSpec
from tests.quant.agreement.shipped import CONFIG, GENERATION, TOKENIZER, edited

TWO = {GENERATION: {"eos_token_id": [2, 0]}}
ALONE = {GENERATION: {"eos_token_id": 0}}
NONE = {GENERATION: {"eos_token_id": None}}
CASES = {  # baseline, variant, read_as of both, what is said
    "alike": ({}, {}, None, ""),
    "one more in the file of both": (TWO, TWO, None, ""),
    "one more in the variant's": ({}, TWO, None, "transformers, vllm, sglang 0 and 2 against"),
    "another in its generation config": ({}, ALONE, None, "transformers 0; vllm, sglang 0 and 2 against"),
    "the same union": (TWO, ALONE, None, "as transformers would read it: transformers 0 against transformers 0 and 2"),
    "the same union, for vLLM": (TWO, ALONE, "vllm", ""),
    "the same union, for SGLang": (TWO, ALONE, "sglang", ""),
    "the same union, for transformers": (TWO, ALONE, "transformers", "as transformers would read it"),
    "no generation config": ({}, {GENERATION: None}, None, ""),
    "no generation config, where it mattered": (TWO, {GENERATION: None}, None, "transformers, vllm, sglang 2 against"),
    "a generation config without the key": ({}, NONE, None, "transformers none against"),
    "the same, for vLLM": ({}, NONE, "vllm", ""),
    "another in config.json": ({}, {CONFIG: {"eos_token_id": 5}}, None, "as sglang would read it: sglang 2 and 5"),
    "another in config.json, for vLLM": ({}, {CONFIG: {"eos_token_id": 5}}, "vllm", ""),
    "the class's default, written out": ({CONFIG: {"eos_token_id": None}}, {}, None, ""),
    "another for llama.cpp alone": (
        {}, {TOKENIZER: {"eos_token": "<|endoftext|>"}}, None, "vllm, sglang 0 and 2 against vllm, sglang 2",
    ),
}  # fmt: skip


def both(tmp_path, baseline, variant, read_as=None) -> tuple[ModelFolder, ModelFolder]:
    ours, theirs = (
        read_model_folder(edited(tmp_path / name, edits), hashed=False, read_as=read_as)
        for name, edits in (("variant", variant), ("baseline", baseline))
    )
    return ours, theirs


@pytest.mark.parametrize("name", CASES)
def test_arms_end_answers_alike_for_every_server_or_are_refused_with_its_name(tmp_path, name):
    baseline, variant, read_as, message = CASES[name]
    ours, theirs = both(tmp_path, baseline, variant, read_as)
    if not message:
        check_same_question(ArmSpec(name="v", model=""), ours, theirs)
        assert ours.stop_ids == theirs.stop_ids
        return
    with pytest.raises(UsageError, match=re.escape(message)):
        check_same_question(ArmSpec(name="v", model=""), ours, theirs)


def test_what_counts_is_the_union_or_the_server_s_that_the_arm_names(tmp_path):
    folder = edited(tmp_path / "model", {GENERATION: {"eos_token_id": 0}, CONFIG: {"eos_token_id": [2, 5]}})
    expected = {None: (0, 2, 5), "transformers": (0,), "vllm": (0, 2), "sglang": (0, 2, 5), "llama.cpp": (0, 2)}
    assert {one.server for one in READINGS} == expected.keys() - {None}
    assert {name: read_model_folder(folder, read_as=name).stop_ids for name in expected} == expected  # type: ignore[arg-type]


def test_readings_that_differ_alike_for_both_arms_are_told_once(tmp_path):
    ours, theirs = both(tmp_path, ALONE, ALONE)
    (line,) = folder_notes([("baseline", theirs), ("v", ours)])
    assert "transformers 0; vllm, sglang 0 and 2" in line
    ours, theirs = both(tmp_path / "named", ALONE, ALONE, "vllm")
    assert list(folder_notes([("baseline", theirs), ("v", ours)])) == []


def test_arms_that_are_read_as_different_servers_are_told_to_agree(tmp_path):
    theirs = read_model_folder(edited(tmp_path / "baseline", TWO), hashed=False)
    ours = read_model_folder(edited(tmp_path / "variant", TWO), hashed=False, read_as="vllm")
    check_same_question(ArmSpec(name="v", model=""), ours, theirs)
    ours, theirs = (
        read_model_folder(edited(tmp_path / name, ALONE), hashed=False, read_as=read_as)
        for name, read_as in (("v", "transformers"), ("b", None))
    )
    with pytest.raises(UsageError, match="the same `read_as` for both arms"):
        check_same_question(ArmSpec(name="v", model=""), ours, theirs)


@pytest.mark.parametrize("edits", [{}, TWO, ALONE, {GENERATION: None}, {GENERATION: None, CONFIG: {"eos_token_id": 5}}])
def test_transformers_itself_reads_what_the_table_says(tmp_path, edits):
    from transformers import GenerationConfig

    folder = edited(tmp_path / "model", edits)
    try:
        made = GenerationConfig.from_pretrained(folder)
    except OSError:  # as GenerationMixin.adjust_generation_fn goes on
        made = GenerationConfig.from_pretrained(folder, config_file_name="config.json", _from_model_config=True)
    ids = made.eos_token_id if isinstance(made.eos_token_id, list) else [made.eos_token_id]
    assert read_model_folder(folder, hashed=False).stops_by_server["transformers"] == tuple(sorted(ids))


@pytest.mark.parametrize("edits", [{}, TWO, {TOKENIZER: {"eos_token": "<|im_start|>"}}])
def test_the_converter_writes_the_end_that_the_table_says(tmp_path, edits):
    gguf = pytest.importorskip("gguf")
    folder = edited(tmp_path / "model", edits)
    written = gguf.SpecialVocab(folder).special_token_ids["eos"]
    assert written in read_model_folder(folder, hashed=False).stops_by_server["llama.cpp"]


def test_the_tokens_of_a_folder_are_told_once(tmp_path, monkeypatch):
    folder = read_model_folder(edited(tmp_path / "model", {}), hashed=False)
    told = []
    monkeypatch.setattr(tokenizer_files, "_token_ids", lambda files: told.append(files) or {"<|im_end|>": 2})
    assert folder.stops_by_server["llama.cpp"] == (2,)
    assert folder.stop_ids
    assert told == [folder.files]
