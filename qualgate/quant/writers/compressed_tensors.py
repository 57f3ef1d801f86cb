"""compressed-tensors: pack-, int-, float-, nvfp4-, mxfp4- and mxfp8-quantized, alone or mixed in one model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from qualgate.errors import UsageError
from qualgate.quant.writers.words import packed_words, words, zero_points
from qualgate_kernels.packed import PackedWeight, unpack_codes

VERSION = "0.19.0"  # of the library whose layout this is

_ARGUMENTS = {
    "actorder": None, "block_structure": None, "dynamic": False, "group_size": None, "num_bits": 8, "observer": None,
    "observer_kwargs": {}, "scale_dtype": None, "strategy": None, "symmetric": True, "type": "int", "zp_dtype": None,
}  # fmt: skip


def tensors(name: str, weight: PackedWeight, activations: str = "") -> dict[str, torch.Tensor]:
    """Return the weight's tensors in the format that `format_of` names. UsageError for what none of them holds."""
    format = format_of(name, weight, activations)
    rows, columns = weight.shape
    if format == "pack-quantized":
        parts = {
            "weight_packed": words(weight.codes),
            "weight_scale": weight.scales,
            "weight_shape": torch.tensor([rows, columns], dtype=torch.int64),
        }
        if weight.zero_points is not None:
            parts["weight_zero_point"] = packed_words(zero_points(weight).T, weight.bits).T.contiguous()
    elif format == "int-quantized":
        codes = unpack_codes(weight.codes, weight.bits, columns).to(torch.int16) - 2 ** (weight.bits - 1)
        parts = {"weight": codes.to(torch.int8), "weight_scale": weight.scales}
    elif format in ("float-quantized", "mxfp8-quantized"):
        parts = {"weight": weight.codes.view(torch.float8_e4m3fn), "weight_scale": weight.scales}
    else:
        parts = {"weight_packed": weight.codes, "weight_scale": weight.scales}
        if weight.tensor_scale is not None:
            # This format divides by the global scale.
            scale = weight.tensor_scale if weight.tensor_divides else 1 / weight.tensor_scale
            parts["weight_global_scale"] = scale.view(1)
    if weight.block_rows == 0 and weight.group_size == 0:
        parts["weight_scale"] = weight.scales.view(1)
    return {f"{name}.{part}": tensor for part, tensor in parts.items()}


def format_of(name: str, weight: PackedWeight, activations: str = "") -> str:
    """Return the name of the format that holds `weight`. Raises UsageError when none does."""
    tiled = weight.block_rows not in (0, 1)
    if weight.g_idx is not None:
        raise UsageError(
            f"{name} has act-order groups, which compressed-tensors no longer has (since 0.19 it refuses them). "
            "Write it as gptq, or quantize with `act_order: static`."
        )
    if weight.code == "int" and weight.offsets is None and not tiled:
        return "int-quantized" if activations else "pack-quantized"
    if weight.code == "e4m3" and weight.scales.dtype == torch.uint8 and weight.group_size == 32:
        return "mxfp8-quantized"
    if weight.code == "e4m3" and weight.scales.is_floating_point() and (tiled or weight.group_size == 0):
        return "float-quantized"
    if weight.code == "e2m1" and weight.scales.dtype == torch.float8_e4m3fn and weight.group_size == 16:
        return "nvfp4-pack-quantized"
    if weight.code == "e2m1" and weight.scales.dtype == torch.uint8 and weight.group_size == 32:
        return "mxfp4-pack-quantized"
    raise UsageError(f"{name} is {weight.format}, which compressed-tensors has no format for.")


def config(weights: Mapping[str, PackedWeight], plain: Sequence[str], activations: Mapping[str, str]) -> dict[str, Any]:
    """Return the quantization_config. plain: modules that stay floats; activations: the dtype of each module's
    inputs."""
    schemes: list[dict[str, Any]] = []
    members: list[list[str]] = []
    for name, weight in weights.items():
        scheme = _scheme(name, weight, activations.get(name, ""))
        if scheme not in schemes:
            schemes.append(scheme)
            members.append([])
        members[schemes.index(scheme)].append(name)
    uniform = len(schemes) == 1
    groups = {
        f"group_{number}": {"targets": ["Linear"] if uniform else names, **scheme}
        for number, (scheme, names) in enumerate(zip(schemes, members, strict=True))
    }
    return {
        "quant_method": "compressed-tensors",
        "quantization_status": "compressed",
        "format": schemes[0]["format"] if uniform else "mixed-precision",
        "config_groups": groups,
        "ignore": list(plain),
        "kv_cache_scheme": None,
        "global_compression_ratio": None,
        "sparsity_config": {},
        "transform_config": {},
        "version": VERSION,
    }


def _scheme(name: str, weight: PackedWeight, activations: str) -> dict[str, Any]:
    """Return the config's entry for one weight and the rounding of its inputs ("" for none), without targets."""
    format = format_of(name, weight, activations)
    arguments: dict[str, Any] = {**_ARGUMENTS, "num_bits": weight.bits, "symmetric": weight.zero_points is None}
    arguments["type"] = "int" if weight.code == "int" else "float"
    if weight.block_rows not in (0, 1):
        arguments |= {"strategy": "block", "block_structure": [weight.block_rows, weight.group_size]}
    elif format == "nvfp4-pack-quantized":
        arguments |= {"strategy": "tensor_group", "group_size": 16, "scale_dtype": "torch.float8_e4m3fn"}
    elif weight.group_size:
        arguments |= {"strategy": "group", "group_size": weight.group_size}
        arguments["scale_dtype"] = "torch.uint8" if weight.scales.dtype == torch.uint8 else None
    else:
        arguments["strategy"] = "tensor" if weight.block_rows == 0 else "channel"
    inputs = None
    if activations:
        inputs = {**_ARGUMENTS, "dynamic": True, "strategy": "token", "type": arguments["type"]}
    return {"weights": arguments, "input_activations": inputs, "output_activations": None, "format": format}
