"""A variant's architecture is held against its baseline's by what its config means, not by how it is written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from qualgate.errors import UsageError
from qualgate.pipeline.checks import check_same_architecture
from qualgate.quant.agreement.rope import spelling_notes
from qualgate.quant.model_files import ModelFiles
from qualgate.quant.model_folder import ModelFolder, read_model_folder
from qualgate.quant.shards import Shards
from qualgate.records import ArmSpec
from qualgate.refmodel import PATH
from tests.tables import each_row


def without(config: dict[str, Any], *keys: str) -> dict[str, Any]:
    return {key: value for key, value in config.items() if key not in keys}


LLAMA = {
    "model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_size": 64, "intermediate_size": 128,
    "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "vocab_size": 320,
    "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "hidden_act": "silu",
}  # fmt: skip
QWEN = {**LLAMA, "model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "use_sliding_window": False}
NEOX = {**LLAMA, "model_type": "gpt_neox"}
GEMMA3 = {
    **without(LLAMA, "hidden_act"), "model_type": "gemma3_text", "hidden_activation": "gelu_pytorch_tanh",
    "sliding_window": 128, "sliding_window_pattern": 2, "rope_local_base_freq": 10000,
}  # fmt: skip
LONG = {"type": "longrope", "long_factor": [1.1] * 8, "short_factor": [1.05] * 8}
PHI3 = {**LLAMA, "model_type": "phi3", "original_max_position_embeddings": 64, "rope_scaling": LONG, "pad_token_id": 0}
THETA = {"rope_theta": 10000.0}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512}
OLD_1M = {**LLAMA, "rope_theta": 1e6}
NEW_1M = {**without(LLAMA, "rope_theta"), "rope_parameters": {"rope_theta": 1e6, "rope_type": "default"}}
TOKENS = {"model": {"vocab": {str(token): token for token in range(300)}}, "added_tokens": [{"id": 301}]}


def folder(config: dict[str, Any], name: str = "variant") -> ModelFolder:
    raw = {"config.json": json.dumps(config).encode(), "tokenizer.json": json.dumps(TOKENS).encode()}
    none = Shards(folder=Path(name), files=(), nbytes=0, entries={}, metadata={}, sha256="")
    return ModelFolder(files=ModelFiles(path=Path(name), raw=raw), shards=none, format=None)


@each_row(
    ("baseline", "edit", "said"),
    [
        (LLAMA, {"rope_theta": 500000.0}, "rope_parameters.rope_theta 500000 against 10000"),
        (LLAMA, {"rope_scaling": YARN}, "rope_parameters.rope_type yarn against default"),
        (LLAMA, {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rope_parameters.factor 2 against nothing"),
        (LLAMA, {"rms_norm_eps": 1e-5}, "rms_norm_eps 1e-05 against 1e-06"),
        (LLAMA, {"max_position_embeddings": 256}, "max_position_embeddings 256 against 512"),
        (LLAMA, {"hidden_act": "gelu"}, "hidden_act gelu against silu"),
        (LLAMA, {"num_key_value_heads": 4}, "num_key_value_heads 4 against 2"),
        (LLAMA, {"head_dim": 32}, "head_dim 32 against 16"),
        (LLAMA, {"vocab_size": 290}, "vocab_size 290 against 320"),
        (LLAMA, {"attention_bias": True}, "attention_bias True against nothing"),
        (LLAMA, {"sliding_window": 128}, "sliding_window 128 against nothing"),  # vLLM reads it of any architecture
        (LLAMA, {"swin_norm": True}, "swin_norm True against nothing"),
        (LLAMA, {"architectures": ["MistralForCausalLM"]}, "architectures MistralForCausalLM against LlamaForCausalLM"),
        (LLAMA, {"model_type": "qwen2"}, "model_type qwen2 against llama"),
        (LLAMA, {"is_causal": False}, "is_causal False against nothing"),  # transformers and vLLM take it for true
        (LLAMA, {"output_multiplier": 3, "use_sliding_window": False}, "output_multiplier 3 against nothing"),
        (LLAMA, {"mtp_scale": 0}, "mtp_scale 0 against nothing"),
        (LLAMA, {"_scale": 3}, "_scale 3 against nothing"),
        (LLAMA, {"initializer_scale": 3, "transformers_scale": 1}, "initializer_scale 3 against nothing"),
        (LLAMA, {"use_sliding_window": False, "sliding_window": 16}, "sliding_window 16 against nothing"),
        (
            QWEN,
            {"sliding_window": 16, "layer_types": ["sliding_attention"] * 2},
            "layer_types ['sliding_attention', 'sliding_attention'] against nothing",
        ),
        (NEOX, {"use_parallel_residual": False}, "use_parallel_residual False against True"),
        (
            LLAMA,
            {"architectures": ["LlamaForSequenceClassification", "LlamaForCausalLM"]},
            "architectures LlamaForSequenceClassification, LlamaForCausalLM against LlamaForCausalLM",
        ),
        (
            GEMMA3,
            {"sliding_window_pattern": 3},
            "layer_types ['sliding_attention', 'sliding_attention'] against ['sliding_attention', 'full_attention']",
        ),
        (QWEN, {"use_sliding_window": True, "max_window_layers": 1}, "use_sliding_window True against nothing"),
        (
            {**LLAMA, "rope_scaling": YARN},
            {"rope_scaling": {**YARN, "beta_fast": 16}},
            "rope_parameters.beta_fast 16 against nothing",
        ),
    ],
)
def test_what_no_quantizer_changes_is_refused_by_name_unless_it_is_meant(baseline, edit, said):
    before, after = folder(baseline, "base"), folder({**baseline, **edit})
    with pytest.raises(UsageError) as refused:
        check_same_architecture(ArmSpec(name="awq", model="variant"), after, before)
    assert said in str(refused.value)
    assert "`allow_config: [" in str(refused.value)
    keys = str(refused.value).partition("`allow_config: [")[2].partition("]")[0].split(", ")
    for meant in ({"allow_config": tuple(keys)}, {"another_model": True}):
        told = check_same_architecture(ArmSpec(name="awq", model="variant", **meant), after, before)
        assert said in told


@pytest.mark.parametrize(
    ("baseline", "variant"),
    [
        (LLAMA, {**without(LLAMA, "rope_theta"), "rope_parameters": {**THETA, "rope_type": "default"}}),
        (LLAMA, {**LLAMA, "rms_norm_eps": 9.999999974752427e-07}),  # as float32 holds it
        (LLAMA, {**LLAMA, "head_dim": 16, "rope_scaling": None, "attention_bias": False, "mlp_bias": False}),
        (LLAMA, {**LLAMA, "hidden_act": "swish", "rope_theta": 10000}),
        (LLAMA, {**LLAMA, "vocab_size": 384}),  # rows that no token reaches
        (LLAMA, {**LLAMA, "rope_scaling": {"type": "linear", "factor": 1.0}}),
        (LLAMA, {**LLAMA, "torch_dtype": "float16", "use_cache": False, "_name_or_path": "x", "unsloth_fixed": True}),
        (LLAMA, {**LLAMA, "quantization_config": {"quant_method": "awq"}, "eos_token_id": 7}),
        (QWEN, {**QWEN, "sliding_window": 4096, "max_window_layers": 28}),
        ({**LLAMA, "rope_scaling": YARN}, {**LLAMA, "rope_scaling": {**YARN, "beta_fast": 32.0, "type": "yarn"}}),
        (LLAMA, {**LLAMA, "is_causal": True, "is_llama_config": True, "use_mrope": False, "output_scores": True}),
        (QWEN, {**QWEN, "layer_types": ["full_attention"] * 2, "sliding_window": None}),
        (GEMMA3, {**GEMMA3, "hidden_act": "gelu", "cache_implementation": "hybrid"}),
        (
            GEMMA3,
            {**without(GEMMA3, "sliding_window_pattern"), "layer_types": ["sliding_attention", "full_attention"]},
        ),
        (PHI3, {**PHI3, "rope_scaling": {**LONG, "factor": 8.0, "original_max_position_embeddings": 64}}),
    ],
)
def test_one_meaning_in_two_ways_is_no_difference(baseline, variant):
    assert check_same_architecture(ArmSpec(name="v", model="v"), folder(variant), folder(baseline)) == ()


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        ({"rope_theta": 1e6}, "says rope_theta 1000000 and rope_parameters.rope_theta 10000"),
        (
            {"rope_scaling": {"type": "linear", "factor": 4.0}},
            "says rope_scaling.factor 4 and rope_parameters.factor nothing",
        ),
    ],
)
def test_a_config_that_says_a_key_in_two_ways_is_refused_unless_a_reader_is_named(tmp_path, edit, said):
    for file in PATH.iterdir():
        (tmp_path / file.name).symlink_to(file)
    config = json.loads((PATH / "config.json").read_text())
    (tmp_path / "config.json").unlink()
    (tmp_path / "config.json").write_text(json.dumps(config | edit))
    for read_as in (None, "vllm"):
        with pytest.raises(UsageError) as refused:
            read_model_folder(tmp_path, read_as=read_as)
        assert said in str(refused.value)
    assert read_model_folder(tmp_path, read_as="transformers").config_sha256 != read_model_folder(PATH).config_sha256
    (tmp_path / "config.json").write_text(json.dumps(config | {"rope_theta": 10000}))
    assert read_model_folder(tmp_path).format is None


@pytest.mark.parametrize(
    ("baseline", "variant", "words"),
    [
        (OLD_1M, NEW_1M, ("v: ", "that of baseline in rope_theta", "default (rope_type default, rope_theta 10000)")),
        (NEW_1M, OLD_1M, ("baseline: ", "that of v in rope_theta")),
        (LLAMA, {**NEW_1M, "rope_parameters": {**THETA, "rope_type": "default"}}, ()),  # what transformers 4 takes
        (NEW_1M, NEW_1M, ()),
        (OLD_1M, {**OLD_1M, **NEW_1M, "rope_theta": 1e6}, ()),
        ({**OLD_1M, "text_config": OLD_1M}, {**NEW_1M, "text_config": NEW_1M}, ("v: ",)),
    ],
)
def test_rope_settings_that_transformers_4_reads_of_one_arm_alone_are_told(baseline, variant, words):
    lines = list(spelling_notes((name, folder(one).files) for name, one in (("baseline", baseline), ("v", variant))))
    assert len(lines) == bool(words)
    assert all(word in lines[0] for word in words)
