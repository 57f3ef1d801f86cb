"""Folders that are no text decoder, or of a library that is not read: named before any weight is read."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.model_folder import read_model_folder

FLOATS = {"model.embed_tokens.weight": torch.zeros(8, 8, dtype=torch.bfloat16)}
UP = "model.layers.0.mlp.up_proj"
MLX = {
    f"{UP}.weight": torch.zeros(8, 8, dtype=torch.uint32),
    f"{UP}.scales": torch.zeros(8, 1),
    f"{UP}.biases": torch.zeros(8, 1),
}
QUANTO = {
    f"{UP}.weight._data": torch.zeros(8, 8, dtype=torch.uint8),
    f"{UP}.weight._scale": torch.zeros(8, 1),
    f"{UP}.weight._shift": torch.zeros(8, 1),
}
GROUPS = {"group_size": 64, "bits": 4}


def made(folder: Path, config: dict, tensors: dict[str, torch.Tensor], written_by: str = "pt") -> Path:
    (folder / "config.json").write_text(json.dumps({"model_type": "llama", **config}))
    (folder / "tokenizer.json").write_text("{}")
    save_file(tensors, folder / "model.safetensors", metadata={"format": written_by})
    return folder


def of(kind: str, cls: str, **more: object) -> dict:
    return {"model_type": kind, "architectures": [cls], **more}


OTHERS = {
    "BERT": (of("bert", "BertForMaskedLM"), "model_type 'bert', BertForMaskedLM, is an encoder"),
    "RoBERTa": (of("xlm-roberta", "XLMRobertaModel"), "is an encoder"),
    "an embedding model": (of("modernbert", "ModernBertModel"), "is an encoder"),
    "T5": (of("t5", "T5ForConditionalGeneration", is_encoder_decoder=True), "is an encoder-decoder"),
    "T5 of an old config": ({"model_type": "mt5"}, "is an encoder-decoder"),
    "BART": (of("bart", "BartForConditionalGeneration", is_encoder_decoder=True), "is an encoder-decoder"),
    "Whisper": (of("whisper", "WhisperForConditionalGeneration", is_encoder_decoder=True), "is an encoder-decoder"),
    "a classifier": (of("llama", "LlamaForSequenceClassification"), "a head that writes no text"),
    "a reward model": (of("qwen2", "Qwen2ForRewardModel"), "a head that writes no text"),
    "Qwen2-VL": (of("qwen2_vl", "Qwen2VLForConditionalGeneration", vision_config={}), "reads pictures beside text"),
    "LLaVA": (
        of("llava", "LlavaForConditionalGeneration", vision_config={}, text_config={"model_type": "llama"}),
        "reads pictures beside text",
    ),
    "Qwen2-Audio": (of("qwen2_audio", "Qwen2AudioForConditionalGeneration", audio_config={}), "reads sound"),
}  # fmt: skip


@pytest.mark.parametrize("kind", OTHERS)
def test_a_model_that_is_no_decoder_of_text_is_named_before_its_weights_are_read(tmp_path, kind):
    config, said = OTHERS[kind]
    folder = made(tmp_path, config, FLOATS)
    (folder / "model.safetensors").write_bytes(b"never read")
    with pytest.raises(UsageError, match=said) as refused:
        read_model_folder(folder)
    assert "config.json" in str(refused.value)
    assert "Give " in str(refused.value), "what to give instead"


LIBRARIES = {
    "MLX": ({"quantization": GROUPS, "quantization_config": GROUPS}, MLX, "mlx", "an MLX checkpoint"),
    "MLX before it wrote both": ({"quantization": GROUPS}, MLX, "mlx", "an MLX checkpoint"),
    "MLX without a word in its config": ({}, MLX, "mlx", "an MLX checkpoint"),
    "MLX without a word anywhere": ({}, MLX, "pt", "probably MLX"),
    "quanto by transformers": ({"quantization_config": {"quant_method": "quanto"}}, FLOATS, "pt", "'quanto'"),
    "quanto by itself": ({}, QUANTO, "pt", "'quanto'"),
}


@pytest.mark.parametrize("library", LIBRARIES)
def test_a_library_that_is_not_read_is_named_with_what_to_give_instead(tmp_path, library):
    config, tensors, written_by, said = LIBRARIES[library]
    with pytest.raises(UsageError, match=said) as refused:
        read_model_folder(made(tmp_path, config, tensors, written_by))
    assert "give the" in str(refused.value).lower()
    if library != "MLX without a word anywhere":
        assert isinstance(refused.value, NotInThisVersion)


DECODERS = {
    "Llama": of("llama", "LlamaForCausalLM"),
    "Qwen2": of("qwen2", "Qwen2ForCausalLM"),
    "Gemma 3, text": of("gemma3_text", "Gemma3ForCausalLM"),
    "Gemma 3, whose text part transformers loads": of("gemma3", "Gemma3ForConditionalGeneration", vision_config={}),
    "GPT-2 as it was": of("gpt2", "GPT2LMHeadModel"),
    "Mamba": of("mamba", "MambaForCausalLM"),
    "BERT as a decoder": of("bert", "BertLMHeadModel", is_decoder=True),
    "BART's decoder": of("bart", "BartForCausalLM", is_decoder=True, is_encoder_decoder=False),
    "a config that names no class": {"model_type": "llama"},
    "classes that are none": {"model_type": "llama", "architectures": [None, 3]},
}


@pytest.mark.parametrize("kind", DECODERS)
def test_decoders_are_let_through(tmp_path, kind):
    assert read_model_folder(made(tmp_path, DECODERS[kind], FLOATS)).format is None


def test_full_precision_weights_that_mlx_wrote_are_weights(tmp_path):
    assert read_model_folder(made(tmp_path, {}, FLOATS, "mlx")).format is None


@pytest.mark.parametrize("config", [{"hidden_size": 16}, {"text_config": {"hidden_size": 16}}])
def test_weights_of_another_width_than_the_config_says_are_refused_before_they_are_read(tmp_path, config):
    both = {**FLOATS, "model.norm.weight": torch.zeros(8, dtype=torch.bfloat16)}
    with pytest.raises(UsageError, match=r"config.json: hidden_size is 16, but the weights are 8 wide"):
        read_model_folder(made(tmp_path, config, both))


def test_an_embedding_narrower_than_what_follows_is_no_contradiction(tmp_path):
    both = {**FLOATS, "model.norm.weight": torch.zeros(16, dtype=torch.bfloat16)}
    assert read_model_folder(made(tmp_path, {"hidden_size": 16}, both)).files.config["hidden_size"] == 16


def layers(*names: str) -> dict[str, torch.Tensor]:
    return {f"model.layers.{name}.weight": torch.zeros(8, 8, dtype=torch.bfloat16) for name in names}


TWO = layers("0.mlp.up_proj", "1.mlp.up_proj")


@pytest.mark.parametrize("config", [{"num_hidden_layers": 1}, {"text_config": {"num_hidden_layers": 3}}])
def test_weights_of_more_or_fewer_layers_than_the_config_says_are_refused_before_they_are_read(tmp_path, config):
    with pytest.raises(UsageError, match=r"config.json: num_hidden_layers is \d, but the weights have 2 layers"):
        read_model_folder(made(tmp_path, config, {**FLOATS, **TWO}))


@pytest.mark.parametrize("more", [(), ("2.eh_proj", "2.mlp.up_proj")])
def test_a_layer_that_predicts_more_tokens_is_none_too_many(tmp_path, more):
    read_model_folder(made(tmp_path, {"num_hidden_layers": 2}, {**FLOATS, **TWO, **layers(*more)}))


def test_a_type_that_transformers_does_not_know_is_named_with_what_may_be_meant(tmp_path):
    with pytest.raises(UsageError, match=r"config.json: transformers \S+ does not know .* 'lama'; did you mean"):
        read_model_folder(made(tmp_path, {"model_type": "lama"}, FLOATS))
