"""torchao's safetensors: a tensor X.weight is split in X._weight_qdata, X._weight_scale, …; the header says how.

The header's metadata maps "X.weight" to JSON: `_type`, its attributes in `_data`, the parts in `_tensor_data_names`.

    Int8Tensor                qdata int8 [N, K], scale float32 [N, 1] or [1, 1], zero_point int8 like it (optional)
    Float8Tensor              qdata float8 [N, K], scale float32 [N, 1] or [1, 1]
    IntxUnpackedToInt8Tensor  qdata int8 [N, K] of target_dtype's range, scale [N, groups], zero_point int8 like it
    NVFP4Tensor               qdata uint8 [N, K / 2], low nibble first, scale float8_e4m3fn, possibly swizzled,
                              per_tensor_scale float32, which is multiplied

Inputs: act_quant_kwargs says how they are rounded as they come, unless act_quant_scale (int8, with
act_quant_zero_point) fixes it; NVFP4 has its act_per_tensor_scale, which is multiplied, or none.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Literal

import torch

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.activations import Rounding
from qualgate.quant.readers.source import AGAIN, FLOATS, Activations, Layer, Source, float8_codes, int8_codes, packed
from qualgate_kernels.packed import NVFP4_BLOCK, PackedWeight


def read(source: Source) -> Iterator[tuple[str, Layer]]:
    """Yield every quantized tensor, by its module's name."""
    for name in sorted(source.metadata):
        described = _described(source, name)
        if described is None:
            continue
        kind, attributes, parts = described
        module = name.removesuffix(".weight")
        if module == name:
            raise NotInThisVersion(f"{source.folder}: {name} is a {kind}; only tensors called `weight` are read.")
        make = _KINDS.get(kind)
        if make is None:
            raise NotInThisVersion(
                f"{source.folder}: tensor {name} is torchao's {kind}, which is not read. Types that are read: "
                f"{', '.join(_KINDS)}."
            )
        if unknown := sorted(set(parts) - _PARTS):
            raise NotInThisVersion(f"{source.folder}: {name} has the part {unknown[0]!r:.40}, which is not computed.")
        for part in parts:
            source.take(f"{module}._weight_{part}")
        weight = make(source, module, attributes, parts)
        bias, oddities = source.bias(module, weight.shape[0])
        activations = _activations(source, module, attributes, parts)
        yield module, Layer(weight=weight, layout=kind, bias=bias, activations=activations, oddities=oddities)


def _described(source: Source, name: str) -> tuple[str, dict[str, Any], tuple[str, ...]] | None:
    """Return (type, attributes, parts) of a tensor that the header describes as split; None for any other text."""
    try:
        value = json.loads(source.metadata[name])
    except (ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or not isinstance(value.get("_tensor_data_names"), list):
        return None
    attributes, kind = value.get("_data"), value.get("_type")
    if not isinstance(attributes, dict) or not isinstance(kind, str):
        raise UsageError(f"{source.folder}: the header describes {name} without type or attributes. {AGAIN}")
    return kind, attributes, tuple(str(part) for part in value["_tensor_data_names"])


def _activations(source: Source, module: str, attributes: dict[str, Any], parts: tuple[str, ...]) -> Activations:
    """Return how a layer's inputs are rounded, or why that is not computed."""
    asymmetric = attributes.get("activation_quantization")
    if asymmetric is not None:
        if str(_plain(asymmetric)).upper() == "INT8_ASYM_PER_TOKEN":  # 0.18 writes it small
            return Activations(rounding=Rounding(code="int", bits=8, symmetric=False))
        return Activations(unsupported=f"activation_quantization {asymmetric!r:.40}")
    described = attributes.get("act_quant_kwargs")
    if described is None:
        fixed_parts = [part for part in parts if part.startswith("act_")]
        return Activations(unsupported=f"{fixed_parts[0]} without act_quant_kwargs" if fixed_parts else "")
    kind, inner = (described.get("_type"), described.get("_data")) if isinstance(described, dict) else ("", {})
    make = _INPUTS.get(str(kind))
    if make is None or not isinstance(inner, dict):
        return Activations(unsupported=f"activations as {str(kind) or 'torchao'!s:.40} describes them")
    rounding = make(source, f"{module}._weight_", inner, parts)
    return Activations(unsupported=rounding) if isinstance(rounding, str) else Activations(rounding=rounding)


def _int8_inputs(source: Source, prefix: str, how: dict[str, Any], parts: tuple[str, ...]) -> Rounding | str:
    """Return the rounding of int8 inputs, or why it is not computed. how: the attributes of `act_quant_kwargs`."""
    mapping, size, fixed = _plain(how.get("mapping_type") or "SYMMETRIC"), _granularity(how), "act_quant_scale" in parts
    bits = 7 if how.get("reduce_range") else 8
    if size == "PerTensor" and not fixed:
        return _BATCH
    if mapping not in ("SYMMETRIC", "ASYMMETRIC") or size != ("PerTensor" if fixed else "PerRow"):
        return f"int8 activations with the mapping {mapping!r:.40}, {size!r:.40}"
    if not fixed:
        return Rounding(code="int", bits=bits, symmetric=mapping == "SYMMETRIC", least=2.0**-23)
    zero_point = source.zero_point(f"{prefix}act_quant_zero_point") if "act_quant_zero_point" in parts else 0
    return Rounding(code="int", bits=bits, scale=source.scale(f"{prefix}act_quant_scale"), zero_point=zero_point)


def _float8_inputs(source: Source, prefix: str, how: dict[str, Any], parts: tuple[str, ...]) -> Rounding | str:
    """Return the rounding of float8 inputs, or why it is not computed."""
    size, dtype = _granularity(how), _plain(how.get("float8_dtype") or "float8_e4m3fn")
    if size == "PerTensor":
        return _BATCH
    if how.get("hp_value_lb") is not None or how.get("hp_value_ub") is not None:
        return "float8 activations with bounds for their scale (hp_value_lb, hp_value_ub)"
    if size != "PerRow" or dtype not in _FLOAT8:
        return f"float8 activations with {size!r:.40}, {dtype!r:.40}"
    return Rounding(code=_FLOAT8[dtype], bits=8)


def _nvfp4_inputs(source: Source, prefix: str, how: dict[str, Any], parts: tuple[str, ...]) -> Rounding | str:
    """Return the rounding of NVFP4 inputs, or why it is not computed."""
    if how.get("use_dynamic_per_tensor_scale"):
        return _BATCH
    if how.get("block_size", NVFP4_BLOCK) != NVFP4_BLOCK:
        return f"nvfp4 activations in blocks of {how['block_size']!s:.20}"
    tensor_scale = source.scale(f"{prefix}act_per_tensor_scale") if "act_per_tensor_scale" in parts else 1.0
    return Rounding(code="e2m1", bits=4, group_size=NVFP4_BLOCK, rule="e4m3", tensor_scale=tensor_scale, least=2.0**-6)


def _granularity(how: dict[str, Any]) -> str:
    """Return PerRow (over the last dimension), PerTensor, or what else the attributes name."""
    granularity = how.get("granularity") or {"_type": "PerRow"}
    inner = granularity.get("_data") if isinstance(granularity, dict) else None
    if isinstance(inner, dict) and inner.get("dim", -1) != -1:
        return f"dim {inner['dim']}"
    return str(granularity.get("_type")) if isinstance(granularity, dict) else str(granularity)


def _plain(value: Any) -> str:
    """A name that is written alone or as {"_type": …, "_data": name}; of a dtype without its module."""
    return str(value.get("_data") if isinstance(value, dict) else value).rpartition(".")[2]


def _block(source: Source, module: str, attributes: dict[str, Any], rows: int, columns: int) -> tuple[int, int]:
    """Return (rows, columns) that share a scale."""
    block = attributes.get("block_size")
    if block == []:
        return rows, columns
    if not isinstance(block, list) or len(block) != 2 or any(type(extent) is not int or extent < 1 for extent in block):
        raise UsageError(f"{source.folder}: {module}.weight has block_size {block!r:.40}, expected two sizes. {AGAIN}")
    high, wide = min(block[0], rows), min(block[1], columns)
    if columns % wide or rows % high:
        raise UsageError(
            f"{source.folder}: {module}.weight, {rows} x {columns}, does not divide into blocks of {high} x {wide}. "
            f"{AGAIN}"
        )
    return high, wide


def _integers(source: Source, module: str, attributes: dict[str, Any], parts: tuple[str, ...]) -> PackedWeight:
    """Read integer weights; zero points that are all 0 are left out."""
    name, bits = f"{module}._weight_qdata", _bits(source, module, attributes)
    codes = int8_codes(source, name, bits, "its header")
    scales, sharing = _scales(source, module, attributes, codes["shape"])
    zeros = None
    if "zero_point" in parts:
        offsets = source.expect(f"{module}._weight_zero_point", (torch.int8,), tuple(scales.shape), "like the scales")
        zeros = (offsets.to(torch.int16) + 2 ** (bits - 1)).contiguous() if offsets.any() else None
    return packed(source, name, **codes, scales=scales, zero_points=zeros, **sharing)


def _bits(source: Source, module: str, attributes: dict[str, Any]) -> int:
    """8, or what target_dtype says ("int4")."""
    target = attributes.get("target_dtype")
    if target is None:
        return 8
    text = _plain(target)
    if text not in {f"int{bits}" for bits in range(2, 9)}:
        raise UsageError(f"{source.folder}: {module}.weight is {text!r:.30}, expected int2 to int8. {AGAIN}")
    return int(text[3:])


def _floats(source: Source, module: str, attributes: dict[str, Any], parts: tuple[str, ...]) -> PackedWeight:
    name = f"{module}._weight_qdata"
    codes = float8_codes(source, name)
    scales, sharing = _scales(source, module, attributes, codes["shape"])
    return packed(source, name, **codes, scales=scales, **sharing)


def _scales(
    source: Source, module: str, attributes: dict[str, Any], shape: tuple[int, int]
) -> tuple[torch.Tensor, dict[str, Any]]:
    """Return (the scales, group_size and block_rows); a block as wide or high as the weight is "all of it"."""
    rows, columns = shape
    high, wide = _block(source, module, attributes, rows, columns)
    words = f"{rows} x {columns} in blocks of {high} x {wide}"
    scales = source.expect(f"{module}._weight_scale", FLOATS, (rows // high, columns // wide), words)
    return scales.contiguous(), {
        "group_size": 0 if wide == columns else wide,
        "block_rows": 0 if high == rows and wide == columns and rows > 1 else high,
    }


def _nvfp4(source: Source, module: str, attributes: dict[str, Any], parts: tuple[str, ...]) -> PackedWeight:
    """Read NVFP4 weights, with scales in order or swizzled for tensor cores."""
    name = f"{module}._weight_qdata"
    codes = source.tensor(name)
    if codes.dtype == getattr(torch, "float4_e2m1fn_x2", None):
        codes = codes.view(torch.uint8)
    else:
        codes = source.expect(name, (torch.uint8,), (None, None), "two 4-bit floats a byte")
    rows, columns = codes.shape[0], codes.shape[1] * 2
    if columns % 16 or attributes.get("block_size", 16) != 16:
        raise UsageError(f"{source.where(name)}: tensor {name}, {rows} x {columns}, has no whole blocks of 16. {AGAIN}")
    groups, scale_name = columns // 16, f"{module}._weight_scale"
    if attributes.get("is_swizzled_scales"):
        shape = (32 * -(-rows // 128), 16 * -(-groups // 4))
        tensor = source.expect(scale_name, (torch.float8_e4m3fn,), shape, "swizzled scales")
        scales = _unswizzled(tensor.view(torch.uint8), rows, groups).view(torch.float8_e4m3fn)
    else:
        scales = source.expect(scale_name, (torch.float8_e4m3fn,), (rows, groups), "one scale a block of 16")
    tensor_scale = None
    if "per_tensor_scale" in parts:
        tensor = source.tensor(f"{module}._weight_per_tensor_scale")
        tensor_scale = source.expect(
            f"{module}._weight_per_tensor_scale", (torch.float32,), [1] * tensor.dim()
        ).reshape(())
    return packed(
        source,
        name,
        code="e2m1",
        bits=4,
        shape=(rows, columns),
        codes=codes.contiguous(),
        scales=scales.contiguous(),
        group_size=16,
        tensor_scale=tensor_scale,
    )


def _unswizzled(bytes_: torch.Tensor, rows: int, groups: int) -> torch.Tensor:
    """cuBLAS's layout of scales → [rows, groups]: padded to tiles of 128 x 4, each stored as 32 x (4 x 4)."""
    high, wide = -(-rows // 128), -(-groups // 4)
    tiles = bytes_.reshape(high, wide, 32, 4, 4).permute(0, 3, 2, 1, 4)  # tile row, 32s, row in 32, tile column, column
    return tiles.reshape(high * 128, wide * 4)[:rows, :groups].contiguous()


_KINDS = {
    "Int8Tensor": _integers,
    "Float8Tensor": _floats,
    "IntxUnpackedToInt8Tensor": _integers,
    "NVFP4Tensor": _nvfp4,
}
_FLOAT8: dict[str, Literal["e4m3", "e5m2"]] = {"float8_e4m3fn": "e4m3", "float8_e5m2": "e5m2"}
_INPUTS = {
    "QuantizeTensorToInt8Kwargs": _int8_inputs,
    "QuantizeTensorToFloat8Kwargs": _float8_inputs,
    "QuantizeTensorToNVFP4Kwargs": _nvfp4_inputs,
}
_PARTS = {
    "qdata", "scale", "zero_point", "per_tensor_scale", "act_quant_scale", "act_quant_zero_point",
    "act_per_tensor_scale",
}  # fmt: skip
_BATCH = "one scale for a whole batch, as it comes: a row's result would depend on the rows beside it"
