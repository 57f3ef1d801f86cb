"""The shipped weights: small, bf16, loadable by the plain transformers classes, and able to do the tasks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

import qualgate_evalsets
from qualgate.refmodel import PATH
from qualgate.refmodel.training.evaluate import answers
from qualgate_evalsets.families import FAMILIES
from tests.depth import with_proofs


@pytest.fixture(scope="module")
def model() -> LlamaForCausalLM:
    return AutoModelForCausalLM.from_pretrained(PATH, dtype=torch.float32).eval()


def test_weights_are_bf16_and_at_most_12_mb():
    file = PATH / "model.safetensors"
    assert file.stat().st_size <= 12_000_000
    with safe_open(file, "pt") as tensors:
        assert {tensors.get_slice(name).get_dtype() for name in tensors.keys()} == {"BF16"}  # noqa: SIM118


def test_model_is_a_llama_of_three_to_six_million_parameters_with_a_context_of_1024(model: LlamaForCausalLM):
    assert isinstance(model, LlamaForCausalLM)
    assert 3e6 <= model.num_parameters() <= 6e6
    assert model.config.max_position_embeddings == 1024
    assert model.config.tie_word_embeddings


def test_the_end_token_is_the_same_everywhere(model: LlamaForCausalLM):
    tokenizer = AutoTokenizer.from_pretrained(PATH)
    assert tokenizer.eos_token == "<|im_end|>"
    assert model.config.eos_token_id == model.generation_config.eos_token_id == tokenizer.eos_token_id


@pytest.mark.parametrize("name", with_proofs(FAMILIES, set(FAMILIES) - {"tool_calls"}))
def test_the_model_answers_shipped_cases(model: LlamaForCausalLM, name: str):
    lines = (Path(qualgate_evalsets.__file__).parent / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
    cases = [json.loads(line) for line in lines[:8]]
    texts = answers(model, AutoTokenizer.from_pretrained(PATH), cases)
    assert sum(text == case["answer"] for text, case in zip(texts, cases, strict=True)) >= 4


def test_the_model_card_tells_recipe_and_scores_that_meet_the_goals():
    card = (PATH / "README.md").read_text(encoding="utf-8")
    for word in ("qualgate.refmodel.training.train", "Seed", "Hardware", "Tokens", "grounded_qa", "reformat"):
        assert word in card
    rows = [line.strip("| ").split(" | ") for line in card.splitlines() if line.startswith("| ")]
    mean = {row[0]: float(row[-1]) for row in rows if len(row) == 5 and row[0] != "family"}
    assert set(mean) == {*FAMILIES, "mean", "json_valid"}
    assert min(mean[name] for name in FAMILIES) >= 50
    assert 75 <= mean["mean"] <= 95
    assert mean["json_valid"] >= 98
    assert mean["tool_calls"] >= 85
