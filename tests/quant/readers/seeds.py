"""A whole folder's tensors, quantization config and metadata in each format, which damage starts from."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file

from qualgate_kernels.dequantize import NF4
from tests.quant.readers.made import MODULE, gptq_tensors, words

FIXTURES = Path(__file__).parents[1] / "fixtures"
Seed = tuple[dict[str, torch.Tensor], dict, dict[str, str]]


def gptq() -> Seed:
    draw = np.random.default_rng(0)
    q, scales = draw.integers(0, 16, (16, 32)), torch.tensor(draw.uniform(0.01, 0.1, (16, 2))).half()
    tensors = gptq_tensors(q, np.full((16, 2), 8), scales, 4, draw.permutation(np.arange(32) // 16), v1=True)
    return tensors, {"quant_method": "gptq", "bits": 4, "group_size": 16, "desc_act": True, "sym": True}, {}


def auto_round() -> Seed:
    tensors = {name: tensor for name, tensor in gptq()[0].items() if not name.endswith(".g_idx")}
    own_settings = {MODULE: {"bits": 4, "group_size": 16}, ".*up_proj": {"bits": 16}}
    config = {"quant_method": "auto-round", "bits": 8, "group_size": 32, "sym": True, "data_type": "int",
              "packing_format": "auto_round:auto_gptq", "extra_config": own_settings,
              "block_name_to_quantize": "model.layers"}  # fmt: skip
    return tensors, config, {}


def awq() -> Seed:
    tensors = {
        f"{MODULE}.qweight": torch.randint(-(2**31), 2**31 - 1, (32, 2)).int(),
        f"{MODULE}.qzeros": torch.randint(-(2**31), 2**31 - 1, (2, 2)).int(),
        f"{MODULE}.scales": torch.rand(2, 16).half() + 0.1,
    }
    return tensors, {"quant_method": "awq", "bits": 4, "group_size": 16, "zero_point": True, "version": "gemm"}, {}


def compressed(format: str, weights: dict, tensors: dict[str, torch.Tensor], inputs: dict | None = None) -> Seed:
    group = {"targets": ["Linear"], "weights": weights, "input_activations": inputs}
    config = {
        "quant_method": "compressed-tensors",
        "format": format,
        "config_groups": {"g": group},
        "ignore": ["lm_head"],
    }
    return {f"{MODULE}.{name}": tensor for name, tensor in tensors.items()}, config, {}


def pack_quantized() -> Seed:
    tensors = {
        "weight_packed": torch.tensor(words(np.random.default_rng(0).integers(0, 8, (16, 32)), 3)),
        "weight_scale": torch.rand(16, 2) + 0.1,
        "weight_shape": torch.tensor([16, 32]),
        "weight_zero_point": torch.tensor(words(np.random.default_rng(1).integers(0, 8, (2, 16)), 3).T.copy()),
        "weight_g_idx": (torch.arange(32) % 2).int(),
    }
    weights = {"num_bits": 3, "type": "int", "strategy": "group", "group_size": 16, "symmetric": False,
               "actorder": "group"}  # fmt: skip
    return compressed("pack-quantized", weights, tensors)


def nvfp4() -> Seed:
    tensors = {
        "weight_packed": torch.randint(0, 256, (8, 16)).byte(),
        "weight_scale": (torch.rand(8, 2) * 100 + 1).to(torch.float8_e4m3fn),
        "weight_global_scale": torch.tensor([7.0]),
        "input_global_scale": torch.tensor([300.0]),
    }
    weights = {"num_bits": 4, "type": "float", "strategy": "tensor_group", "group_size": 16}
    return compressed("nvfp4-pack-quantized", weights, tensors, weights | {"dynamic": "local"})


def sparse() -> Seed:
    stored = load_file(FIXTURES / "sparse24.safetensors")
    tensors = {part: stored[f"float8.{part}"] for part in ("compressed", "bitmask", "shape", "weight_scale")}
    weights = {"num_bits": 8, "type": "float", "strategy": "channel", "symmetric": True}
    made, config, metadata = compressed("float-quantized", weights, tensors)
    made |= {
        f"model.layers.0.mlp.up_proj.{part}": stored[f"bfloat16.{part}"] for part in ("compressed", "bitmask", "shape")
    }
    config["sparsity_config"] = {"format": "sparse-24-bitmask", "sparsity_structure": "2:4"}
    return made, config, metadata


def int8_inputs() -> Seed:
    tensors = {
        "weight": torch.randint(-128, 128, (8, 16)).to(torch.int8),
        "weight_scale": torch.rand(8, 1) + 0.1,
        "input_scale": torch.tensor([0.02]),
        "input_zero_point": torch.tensor([-9], dtype=torch.int8),
    }
    inputs = {"num_bits": 8, "type": "int", "strategy": "tensor", "dynamic": False, "symmetric": False}
    return compressed("int-quantized", {"num_bits": 8, "type": "int", "strategy": "channel"}, tensors, inputs)


def fp8() -> Seed:
    tensors = {
        f"{MODULE}.weight": torch.randn(20, 30).to(torch.float8_e4m3fn),
        f"{MODULE}.weight_scale_inv": torch.rand(3, 2) + 0.1,
        f"{MODULE}.input_scale": torch.tensor(0.25),
    }
    return tensors, {"quant_method": "fp8", "weight_block_size": [8, 16], "activation_scheme": "static"}, {}


def modelopt() -> Seed:
    tensors = {
        f"{MODULE}.weight": torch.randint(0, 256, (8, 16)).byte(),
        f"{MODULE}.weight_scale": (torch.rand(8, 2) + 0.1).to(torch.float8_e4m3fn),
        f"{MODULE}.weight_scale_2": torch.tensor(0.01),
        f"{MODULE}.input_scale": torch.tensor(0.02),
    }
    return tensors, {"quant_method": "modelopt", "quant_algo": "NVFP4", "kv_cache_scheme": None}, {}


def modelopt_fp8() -> Seed:
    tensors = {
        f"{MODULE}.weight": torch.randn(6, 32).to(torch.float8_e4m3fn),
        f"{MODULE}.weight_scale": torch.tensor(0.5),
        f"{MODULE}.input_scale": torch.tensor(0.25),
    }
    return tensors, {"quant_method": "modelopt", "quant_algo": "FP8"}, {}


def modelopt_mixed() -> Seed:
    """One layer of NVFP4 and one of FP8."""
    other = MODULE.replace("down", "up")
    fp8_tensors = {name.replace("down", "up"): tensor for name, tensor in modelopt_fp8()[0].items()}
    layers = {MODULE: {"quant_algo": "NVFP4", "group_size": 16}, other: {"quant_algo": "FP8"}}
    config = {"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION", "quantized_layers": layers, "ignore": []}
    return modelopt()[0] | fp8_tensors, config, {}


def fbgemm_fp8() -> Seed:
    tensors = {
        f"{MODULE}.weight": torch.randn(6, 32).to(torch.float8_e4m3fn),
        f"{MODULE}.weight_scale": torch.rand(6, 1) + 0.1,
    }
    return tensors, {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0}, {}


def mxfp4() -> Seed:
    tensors = {
        "model.experts.down_proj_blocks": torch.randint(0, 256, (2, 4, 2, 16)).byte(),
        "model.experts.down_proj_scales": torch.randint(100, 140, (2, 4, 2)).byte(),
    }
    return tensors, {"quant_method": "mxfp4"}, {}


def torchao() -> Seed:
    inputs = {"_type": "QuantizeTensorToNVFP4Kwargs", "_data": {"block_size": 16}}
    described = {
        "_type": "NVFP4Tensor",
        "_data": {"block_size": 16, "is_swizzled_scales": True, "act_quant_kwargs": inputs},
        "_tensor_data_names": ["qdata", "scale", "per_tensor_scale", "act_per_tensor_scale"],
    }
    tensors = {
        f"{MODULE}._weight_qdata": torch.randint(0, 256, (8, 16)).byte(),
        f"{MODULE}._weight_scale": torch.ones(32, 16).to(torch.float8_e4m3fn),
        f"{MODULE}._weight_per_tensor_scale": torch.tensor(0.5),
        f"{MODULE}._weight_act_per_tensor_scale": torch.tensor(0.25),
    }
    return tensors, {"quant_method": "torchao"}, {f"{MODULE}.weight": json.dumps(described)}


def nf4() -> Seed:
    state = {"quant_type": "nf4", "blocksize": 64, "shape": [8, 32], "nested_blocksize": 2, "nested_offset": 0.5}
    tensors = {
        f"{MODULE}.weight": torch.randint(0, 256, (128, 1)).byte(),
        f"{MODULE}.weight.absmax": torch.randint(0, 256, (4,)).byte(),
        f"{MODULE}.weight.quant_map": torch.tensor(NF4),
        f"{MODULE}.weight.nested_absmax": torch.rand(2) + 0.1,
        f"{MODULE}.weight.nested_quant_map": torch.rand(256),
        f"{MODULE}.weight.quant_state.bitsandbytes__nf4": torch.tensor(list(json.dumps(state).encode())).byte(),
    }
    return tensors, {"quant_method": "bitsandbytes", "load_in_4bit": True}, {}


SEEDS = {
    make.__name__: make
    for make in (
        gptq, auto_round, awq, pack_quantized, nvfp4, sparse, int8_inputs, fp8, fbgemm_fp8, modelopt, modelopt_fp8,
        modelopt_mixed, mxfp4, torchao, nf4,
    )
}  # fmt: skip
