"""What a checkpoint says of its keys and values, by config and by the names of its scales, without torch."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import pytest

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.cache_scheme import cache_scales, declared_cache
from qualgate.quant.formats import said_by_config
from qualgate.quant.model_files import ModelFiles

SCHEME = {"num_bits": 8, "type": "float", "strategy": "tensor", "dynamic": False, "symmetric": True}
GROUPS = {"group_0": {"targets": ["Linear"], "weights": {"num_bits": 8, "type": "float"}}}


def files(quantization=None, beside=None) -> ModelFiles:
    """A folder's config.json with a quantization config, and ModelOpt's own file."""
    raw = {"config.json": json.dumps({"quantization_config": quantization} if quantization else {}).encode()}
    if beside is not None:
        raw["hf_quant_config.json"] = json.dumps({"quantization": beside}).encode()
    return ModelFiles(path=Path("model"), raw=raw)


def compressed(scheme, **more) -> ModelFiles:
    return files({"quant_method": "compressed-tensors", "kv_cache_scheme": scheme, **more})


DECLARED = {
    "compressed-tensors": compressed(SCHEME, config_groups=GROUPS),
    "with what it leaves to defaults": compressed({"num_bits": 8, "type": "float"}),
    "ModelOpt beside the config": files(beside={"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}),
    "ModelOpt in the config": files({"quant_method": "modelopt", "quant_algo": "FP8", "kv_cache_scheme": SCHEME}),
    "ModelOpt in the config, by its name": files(
        {"quant_method": "modelopt", "quantization": {"quant_algo": None, "kv_cache_quant_algo": "FP8"}}
    ),
}
SILENT = {
    "nothing": files(),
    "no scheme": compressed(None, config_groups=GROUPS),
    "ModelOpt of weights": files(beside={"quant_algo": "FP8", "kv_cache_quant_algo": None}),
    "AutoFP8, whose scheme servers do not follow": files({"quant_method": "fp8", "kv_cache_scheme": "static"}),
}
OTHERS = {
    "integers": compressed(SCHEME | {"type": "int"}),
    "4 bits": compressed(SCHEME | {"num_bits": 4}),
    "one scale a head": compressed(SCHEME | {"strategy": "attn_head"}),
    "scales as they come": compressed(SCHEME | {"dynamic": True}),
    "zero points": compressed(SCHEME | {"symmetric": False}),
    "groups": compressed(SCHEME | {"group_size": 16}),
    "no mapping": compressed(["fp8"]),
    "ModelOpt's int8": files(beside={"quant_algo": None, "kv_cache_quant_algo": "INT8"}),
    "ModelOpt's NVFP4": files(beside={"quant_algo": "NVFP4", "kv_cache_quant_algo": "NVFP4"}),
}


@pytest.mark.parametrize("who", DECLARED)
def test_a_config_that_says_fp8_is_followed(who):
    assert declared_cache(DECLARED[who]) == "fp8"


@pytest.mark.parametrize("who", SILENT)
def test_a_config_that_says_nothing_of_the_cache_declares_nothing(who):
    assert declared_cache(SILENT[who]) == ""


@pytest.mark.parametrize("who", OTHERS)
def test_another_format_is_named_with_the_file_and_what_to_write(who):
    with pytest.raises(
        NotInThisVersion, match=r"(hf_quant_)?config\.json: keys and values quantized as .*`kv_cache: int8`"
    ):
        declared_cache(OTHERS[who])


def test_where_the_cache_alone_is_quantized_the_weights_are_whole():
    assert said_by_config(compressed(SCHEME, config_groups={})) is None
    assert said_by_config(files({"quant_method": "modelopt", "quant_algo": None, "kv_cache_quant_algo": "FP8"})) is None
    found = said_by_config(compressed(SCHEME, config_groups=GROUPS))
    assert found is not None
    assert found.method == "compressed-tensors"


NAMES = {
    "llm-compressor": ("self_attn.k_scale", "self_attn.v_scale"),
    "llm-compressor before, and AutoFP8": ("self_attn.k_proj.output_scale", "self_attn.v_proj.output_scale"),
    "ModelOpt": ("self_attn.k_proj.k_scale", "self_attn.v_proj.v_scale"),
    "ModelOpt, the three in one": ("self_attn.qkv_proj.k_scale", "self_attn.qkv_proj.v_scale"),
}


def shards(*names: str) -> SimpleNamespace:
    return SimpleNamespace(folder=Path("model"), entries=dict.fromkeys(names))


@pytest.mark.parametrize("who", NAMES)
def test_scales_are_found_by_each_writers_names(who):
    keys, values = (f"model.layers.11.{name}" for name in NAMES[who])
    assert cache_scales(shards(keys, values, "model.layers.11.self_attn.q_scale")) == {11: {"k": keys, "v": values}}


def test_one_scale_may_be_of_keys_and_values():
    assert cache_scales(shards("layers.0.self_attn.kv_scale")) == {
        0: dict.fromkeys("kv", "layers.0.self_attn.kv_scale")
    }


@pytest.mark.parametrize(
    "name",
    [
        "model.layers.0.self_attn.k_proj.v_scale",
        "model.layers.0.self_attn.k_proj.weight_scale",
        "model.layers.0.self_attn.q_proj.output_scale",
        "model.layers.0.mlp.k_scale",
        "mtp.layers.0.self_attn.k_scale",
        "vision_model.encoder.layers.0.self_attn.k_scale",
    ],
)
def test_other_tensors_are_no_scales_of_keys_and_values(name):
    assert cache_scales(shards(name)) == {}


def test_two_scales_of_the_same_keys_are_a_contradiction():
    names = ("model.layers.0.self_attn.k_scale", "model.layers.0.self_attn.k_proj.k_scale")
    with pytest.raises(UsageError, match=r"self_attn\.k_scale and \S+k_proj\.k_scale are two scales of the same"):
        cache_scales(shards(*names))
