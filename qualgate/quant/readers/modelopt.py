"""Checkpoints of NVIDIA's Model Optimizer (quant_method "modelopt"), by the `quant_algo` of their config:

    FP8                        weight float8_e4m3fn [N, K]; weight_scale and input_scale, one number each
    FP8_PER_CHANNEL_PER_TOKEN  weight float8_e4m3fn [N, K]; weight_scale [N]; each token of the input has a scale of its
                               own, as it comes
    NVFP4                      weight uint8 [N, K / 2], low nibble = even k; weight_scale float8_e4m3fn [N, K / 16];
                               weight_scale_2 and input_scale, one number each, over the scales of blocks
    W4A16_NVFP4                the same weights; inputs are left as they are
    MIXED_PRECISION            one of these for each layer, by `quantized_layers`

Every scale is multiplied. FP8_PB_WO is not read: its name says that inputs are left as they are, and vLLM 0.33 rounds
them. The scales of keys and values are `cache_scales`' to read.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.activations import Rounding
from qualgate.quant.agreement.plain_layers import mixed_layers
from qualgate.quant.readers.source import AGAIN, FLOATS, Activations, Layer, Source, float4_fields, float8_codes, packed
from qualgate_kernels.packed import NVFP4_BLOCK

ALGORITHMS, MIXED = ("FP8", "FP8_PER_CHANNEL_PER_TOKEN", "NVFP4", "W4A16_NVFP4"), "MIXED_PRECISION"


def read(source: Source) -> Iterator[tuple[str, Layer]]:
    """Yield every quantized layer, by module name. NotInThisVersion for another algorithm."""
    whole = _algorithm(source, _inner(source.format.settings), (*ALGORITHMS, MIXED))
    for module in source.modules(".weight_scale"):
        name, algorithm, size = f"{module}.weight", whole, _block_said(source.format.settings)
        if whole == MIXED:
            own_settings = mixed_layers(source.format).get(module)
            algorithm = _algorithm(source, own_settings if isinstance(own_settings, dict) else {}, ALGORITHMS, module)
            size = own_settings.get("group_size") if isinstance(own_settings, dict) else None
        fields = _nvfp4(source, module, size) if algorithm.endswith("NVFP4") else _fp8(source, module, algorithm)
        weight = packed(source, name, **fields)
        bias, oddities = source.bias(module, weight.shape[0])
        yield (
            module,
            Layer(
                weight=weight,
                layout=f"modelopt {algorithm}",
                bias=bias,
                activations=_activations(source, module, algorithm),
                oddities=oddities,
            ),
        )


def _algorithm(source: Source, settings: dict[str, Any], known: tuple[str, ...], module: str = "") -> str:
    """Return the quant_algo of the config, or of one module, in capitals. Raises for one that is not `known`."""
    algorithm, where = settings.get("quant_algo"), source.format.where
    owner = f" of {module}" if module else ""
    if not isinstance(algorithm, str):
        raise UsageError(f"{where}: quant_algo{owner} is {algorithm!r:.40}, expected a name such as 'FP8'. {AGAIN}")
    if algorithm.upper() not in known:
        raise NotInThisVersion(
            f"{where}: quant_algo {algorithm!r:.40}{owner} of ModelOpt is not read in this version, only "
            f"{', '.join(known)}. Give the checkpoint in one of these, or quantize the full-precision folder "
            "here: quantize: int4"
        )
    return algorithm.upper()


def _inner(settings: dict[str, Any]) -> dict[str, Any]:
    """Return the settings themselves: hf_quant_config.json has them under "quantization"."""
    inner = settings.get("quantization")
    return inner if isinstance(inner, dict) else settings


def _fp8(source: Source, module: str, algorithm: str) -> dict[str, Any]:
    """Return the fields of a PackedWeight of FP8 codes: "FP8" has one scale a tensor, the others one a row."""
    name = f"{module}.weight_scale"
    codes = float8_codes(source, f"{module}.weight")
    if algorithm == "FP8":
        scales = source.tensor(name)
        scales = source.expect(name, FLOATS, [1] * scales.dim(), "one scale a tensor").reshape(1, 1)
        return {**codes, "scales": scales, "group_size": 0, "block_rows": 0}
    rows, stored = codes["shape"][0], source.tensor(name)
    scales = source.expect(name, FLOATS, (rows, 1) if stored.dim() == 2 else (rows,), "one scale a row")
    return {**codes, "scales": scales.reshape(rows, 1), "group_size": 0, "block_rows": 1}


def _nvfp4(source: Source, module: str, block: Any) -> dict[str, Any]:
    """Return the fields of a PackedWeight of NVFP4 codes in blocks of 16, with the scale over all blocks.

    block: the group_size of the config, None without one.
    """
    if block not in (None, NVFP4_BLOCK):
        raise NotInThisVersion(
            f"{source.format.where}: group_size is {block!r:.20}, but NVFP4 is read in blocks of {NVFP4_BLOCK}, as in "
            f"vLLM. Quantize the model again with blocks of {NVFP4_BLOCK}."
        )
    scales, dtype = f"{module}.weight_scale", torch.float8_e4m3fn
    return {
        **float4_fields(source, f"{module}.weight", scales, dtype, NVFP4_BLOCK),
        "tensor_scale": torch.tensor(source.scale(f"{module}.weight_scale_2", "one scale over all blocks")),
    }


def _block_said(settings: dict[str, Any]) -> Any:
    """Weights that share a scale, as the config says; None where it does not."""
    groups = settings.get("config_groups")
    group = next(iter(groups.values()), None) if isinstance(groups, dict) else None
    weights = group.get("weights") if isinstance(group, dict) else None
    for source in (weights, _inner(settings)):
        if isinstance(source, dict) and source.get("group_size") is not None:
            return source["group_size"]
    return None


def _activations(source: Source, module: str, algorithm: str) -> Activations:
    """Return how a layer's inputs are rounded. A smoothing scale of inputs makes them unsupported."""
    fixed, before = f"{module}.input_scale", f"{module}.pre_quant_scale"
    if source.has(before):
        source.take(before)
        source.take(fixed)
        return Activations(unsupported=f"{before} multiplies its input")
    if algorithm == "FP8":
        return Activations(rounding=Rounding(code="e4m3", bits=8, scale=source.scale(fixed)))
    if algorithm == "NVFP4":
        return Activations(
            rounding=Rounding(
                code="e2m1", bits=4, group_size=NVFP4_BLOCK, rule="e4m3", tensor_scale=source.scale(fixed)
            )
        )
    if source.has(fixed):
        source.take(fixed)
        return Activations(unsupported=f"{fixed} is there, for which {algorithm} has no use")
    return Activations(rounding=Rounding(code="e4m3", bits=8)) if algorithm.startswith("FP8") else Activations()
