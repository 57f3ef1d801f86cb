"""AutoRound's folders: values of its own layer classes, other settings by layer, and refusals by name."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.agreement.plain_layers import Module, check_plain
from qualgate.quant.formats import recognise
from qualgate.quant.readers import read_quantized
from qualgate_kernels.dequantize import dequantize_torch
from tests.quant.readers.made import folder_of

FIXTURES = Path(__file__).parents[1] / "fixtures" / "auto_round"
FORMATS = {
    "gptq": ["int8 g32", "int2 per row", "int3 g32", "int5 g32", "int4 g32"],
    "native": ["int8 g32", "int2 per row asym", "int3 g32 asym", "int5 g32 asym", "int4 g32 asym"],
    "awq": ["int4 g32 asym"] * 5,
}


def fixture(name: str) -> tuple[dict[str, torch.Tensor], dict, dict[str, str]]:
    """Tensors, config, and by layer the sha256 of the weight that AutoRound multiplies, in float16."""
    written = json.loads((FIXTURES / f"{name}.json").read_text())
    return load_file(FIXTURES / f"{name}.safetensors"), written["quantization_config"], written["sha256"]


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_weights_are_those_that_autoround_multiplies(tmp_path, name):
    tensors, config, expected = fixture(name)
    checkpoint = read_quantized(folder_of(tmp_path, tensors, config))
    weights = {name: dequantize_torch(layer.weight).half() + 0 for name, layer in checkpoint.layers.items()}
    assert {name: hashlib.sha256(weight.numpy().tobytes()).hexdigest() for name, weight in weights.items()} == expected
    assert [layer.weight.format for layer in checkpoint.layers.values()] == FORMATS[name]
    assert list(checkpoint.tensors) == ["model.layers.1.self_attn.k_proj.weight"]  # 16 bits by extra_config


REGEX = {".*layers\\.0.*": {"bits": 16}, ".*v_proj": {"bits": 2, "group_size": 64}, "model.layers.1.self_attn": {}}


@pytest.mark.parametrize(
    ("extra", "change", "error", "message"),
    [
        (
            {},
            {},
            UsageError,
            r"scales is float16 \[2, 32\], expected .* \(128 in_features at 4 bits, in groups of 32\)",
        ),
        (
            {"model.layers.0.self_attn.k_proj": {"bits": 16}},
            {},
            UsageError,
            "leaves model.layers.0.self_attn.k_proj out",
        ),
        (REGEX, {}, UsageError, "leaves model.layers.0.self_attn.k_proj out"),
        ({"(": {"bits": 16}}, {}, UsageError, "no regular expression"),
        ({"model.layers.0.self_attn.k_proj": 8}, {}, UsageError, "expected a JSON object"),
        ({"model.layers.0.self_attn.k_proj": {"bits": 9}}, {}, UsageError, "bits is 9, expected one of 2, 3, 4, 5"),
        ({".*k_proj": {"bits": 8, "act_bits": 8}}, {}, NotInThisVersion, r"act_bits 8, which model.layers.0.self_attn"),
        ({}, {"data_type": "mx_fp"}, NotInThisVersion, r'data_type .mx_fp.* Save .* format="llm_compressor"'),
        ({}, {"packing_format": "auto_round:fp8"}, NotInThisVersion, "'auto_round:fp8'"),
        ({}, {"block_name_to_quantize": "model.blocks"}, UsageError, "leaves model.layers.0.self_attn.k_proj out"),
        ({}, {"block_name_to_quantize": 7}, UsageError, "expected a list of names"),
        (None, {"extra_config": []}, UsageError, r"extra_config is \[\], expected dict"),
    ],
)
def test_what_extra_config_contradicts_is_refused_by_name(tmp_path, extra, change, error, message):
    tensors, config, _ = fixture("gptq")
    config = config | ({} if extra is None else {"extra_config": extra}) | change
    with pytest.raises(error, match=message):
        read_quantized(folder_of(tmp_path, tensors, config))


def test_zero_points_of_the_other_packing_are_named_by_its_key(tmp_path):
    tensors, config, _ = fixture("gptq")
    layer = {name: tensor for name, tensor in tensors.items() if "layers.2.self_attn.v_proj" in name}
    with pytest.raises(UsageError, match="Set `packing_format` to 'auto_round:auto_gptq' there"):
        read_quantized(folder_of(tmp_path, layer, config | {"packing_format": "auto_round"}))


def test_names_come_before_patterns_and_the_first_pattern_counts(tmp_path):
    tensors, config, _ = fixture("gptq")
    patterns = {
        "^model.layers.0.*[k]_proj$": {"bits": 8}, ".*v_proj": {"bits": 3}, "k_proj|nothing": {"bits": 16},
        "model.layers.0.self_attn.v_proj": {"bits": 2, "group_size": 64},
        "model.layers.2.self_attn.k_proj": {"bits": 5},
        "model.layers.2.self_attn.v_proj": {"bits": 4},
    }  # fmt: skip
    layers = read_quantized(folder_of(tmp_path, tensors, {**config, "extra_config": patterns})).layers
    assert [layer.weight.format for layer in layers.values()] == FORMATS["gptq"]


def test_a_plain_layer_of_a_block_needs_16_bits_in_extra_config(tmp_path):
    tensors, config, _ = fixture("awq")
    for extra, listed in (({}, False), (config["extra_config"], True)):
        format = recognise(folder_of(tmp_path, tensors, {**config, "extra_config": extra}))
        assert format is not None
        modules = [Module(name=name, classes=("Linear",)) for name in ("model.layers.1.self_attn.k_proj", "lm_head")]
        plain = [module.name for module in modules]
        if listed:
            check_plain(format, modules, [], plain, None)
        else:
            with pytest.raises(
                UsageError, match=r"`extra_config: \{\"model.layers.1.self_attn.k_proj\": \{\"bits\": 16"
            ):
                check_plain(format, modules, [], plain, None)
