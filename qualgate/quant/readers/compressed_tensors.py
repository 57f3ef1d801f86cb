"""compressed-tensors folders, written by llm-compressor or us: every `format`, also as sparse-24-bitmask.

    pack-quantized        weight_packed int32 [N, ceil(K * bits / 32)], a bitstream along each row of q + 2**(bits - 1)
                          weight_scale [N, groups]; weight_shape int64 [2]
                          weight_zero_point int32 [ceil(N * bits / 32), groups], a bitstream down each column
                          weight_g_idx int32 [K] (written by older versions only)
    int-quantized         weight int8 [N, K]; weight_scale [N, 1]; weight_zero_point int8 like the scales
    float-quantized       weight float8_e4m3fn [N, K]; weight_scale [N, 1], [1] or [ceil(N / 128), ceil(K / 128)]
    nvfp4-pack-quantized  weight_packed uint8 [N, K / 2], low nibble = even k; weight_scale float8_e4m3fn [N, K / 16];
                          weight_global_scale float32 [1], which the block scale is divided by
    mxfp4-pack-quantized  weight_packed uint8 [N, K / 2]; weight_scale uint8 [N, K / 32], E8M0
    mxfp8-quantized       weight float8_e4m3fn [N, K]; weight_scale uint8 [N, K / 32], E8M0

Inputs with scales that calibration fixed have input_scale [1], for asymmetric integers input_zero_point int8 [1], for
NVFP4 input_global_scale float32 [1], which the block scale is divided by; all others have none.

config_groups say which modules have which scheme; the tensors say which modules are quantized. Where the two
disagree the checkpoint is refused.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.activations import Rounding
from qualgate.quant.agreement.conventions import check_activation_order
from qualgate.quant.agreement.patterns import name_fits
from qualgate.quant.formats import Format
from qualgate.quant.readers.source import (
    AGAIN,
    FLOATS,
    Activations,
    Layer,
    Source,
    as_exponents,
    float4_fields,
    float8_codes,
    int8_codes,
    packed,
    per_row_words,
)
from qualgate.quant.readers.sparse import add_dense
from qualgate_kernels.packed import MXFP4_BLOCK, NVFP4_BLOCK, PackedWeight, unpack_codes

_PACKED_INT, _PACKED_NVFP4, _PACKED_MXFP4 = "pack-quantized", "nvfp4-pack-quantized", "mxfp4-pack-quantized"
_SPARSE_24 = "sparse-24-bitmask"
_INT, _FLOAT, _NAIVE, _MXFP8 = "int-quantized", "float-quantized", "naive-quantized", "mxfp8-quantized"
# What `weights` must say of the formats that hold one kind of number alone. compressed-tensors takes "int" for none.
_NUMBERS: dict[str, dict[str, Any]] = {
    _PACKED_NVFP4: {"num_bits": 4, "type": "float", "group_size": NVFP4_BLOCK, "strategy": "tensor_group"},
    _PACKED_MXFP4: {"num_bits": 4, "type": "float", "group_size": MXFP4_BLOCK, "strategy": "group"},
    _MXFP8: {"num_bits": 8, "type": "float", "group_size": MXFP4_BLOCK, "strategy": "group"},
    _FLOAT: {"num_bits": 8, "type": "float"},
}
_FORMATS = (_PACKED_INT, _PACKED_NVFP4, _PACKED_MXFP4, _INT, _FLOAT, _NAIVE, _MXFP8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scheme:
    """One entry of config_groups, as far as weights and inputs need it."""

    format: str  # one of _FORMATS
    bits: int
    floating: bool
    strategy: str  # tensor, channel, group, block, tensor_group
    group_size: int  # 0 = none
    block: tuple[int, int] | None
    symmetric: bool
    targets: tuple[str, ...]
    inputs: Any  # input_activations as the config has it
    actorder: Any  # likewise


def read(source: Source) -> Iterator[tuple[str, Layer]]:
    """Yield every quantized layer, by module name. Raises UsageError where config and tensors disagree."""
    _refuse_extras(source.format)
    add_dense(source)
    schemes = _schemes(source.format)
    for module in sorted({*source.modules(".weight_packed"), *source.modules(".weight_scale")}):
        scheme = _scheme_of(source, schemes, module)
        yield module, _layer(source, module, scheme)


def _refuse_extras(format: Format) -> None:
    """Refuse what changes a forward pass beyond quantized linear layers, because it is not computed here."""
    if running := _rotates_while_running(format.settings.get("transform_config")):
        raise NotInThisVersion(
            f"{format.where}: transform_config asks for rotations at run time ({running}), which are not read. "
            "Quantize the model again without them, or with rotations that are merged into the weights."
        )
    sparsity = format.settings.get("sparsity_config")
    kind = sparsity.get("format", "dense") if isinstance(sparsity, dict) else "dense"
    if kind not in ("dense", _SPARSE_24) or (kind == _SPARSE_24 and not format.settings.get("config_groups")):
        without = "" if kind != _SPARSE_24 else " of weights that are not quantized"
        raise NotInThisVersion(
            f"{format.where}: sparsity format {str(kind)!r:.40}{without} is not read. Save the model decompressed."
        )


def _rotates_while_running(transforms: Any) -> str:
    """Return where a rotation runs with the model; "" if all were merged into the weights. See `is_online` in
    transform_args.py of compressed-tensors."""
    if not transforms:
        return ""
    groups = transforms.get("config_groups") if isinstance(transforms, dict) else None
    for name, group in groups.items() if isinstance(groups, dict) else [("config_groups", None)]:
        applied = group.get("apply") if isinstance(group, dict) else None
        for transform in applied if isinstance(applied, list) else [None]:
            location = transform.get("location") if isinstance(transform, dict) else None
            if location not in ("weight_input", "weight_output"):
                return f"{name}: {location!r:.40}"
    return ""


def _schemes(format: Format) -> list[Scheme]:
    """Return the scheme of each group of the config. Raises for groups that contradict themselves or are not read."""
    groups = format.setting("config_groups", kind=dict)
    schemes = []
    for name, group in groups.items():
        where = f"{format.where}: config_groups.{name}"
        if not isinstance(group, dict) or not isinstance(group.get("weights"), dict):
            raise UsageError(f"{where} has no `weights`, so its layers cannot be read. {AGAIN}")
        if group.get("output_activations"):
            raise NotInThisVersion(f"{where} quantizes outputs, which is not computed in this version.")
        weights = group["weights"]
        kind = group.get("format") or format.settings.get("format") or ""
        if kind not in _FORMATS:
            raise NotInThisVersion(
                f"{where}: format {str(kind)!r:.40} is not read. Formats that are read: {', '.join(_FORMATS)}. "
                "Save the model again in one of these."
            )
        _refuse_contradictions(where, format.settings.get("format"), kind, group)
        block, targets = weights.get("block_structure"), group.get("targets") or []
        if not isinstance(targets, list) or not all(isinstance(target, str) for target in targets):
            raise UsageError(f"{where}: targets is {targets!s:.40}, expected a list of names. {AGAIN}")
        schemes.append(
            Scheme(
                format=kind,
                bits=min(_whole(where, weights, "num_bits", 1), 64),  # no format has more; 2**bits stays a number
                floating=weights.get("type") == "float",
                strategy=str(weights.get("strategy") or ("group" if weights.get("group_size") else "tensor")),
                group_size=max(0, _whole(where, weights, "group_size", -1, 0)),
                block=_block(where, block) if block else None,
                symmetric=weights.get("symmetric") is not False,
                targets=tuple(targets),
                inputs=group.get("input_activations"),
                actorder=weights.get("actorder"),
            )
        )
    return schemes


def _refuse_contradictions(where: str, whole: Any, kind: str, group: dict[str, Any]) -> None:
    """Raise UsageError for keys of one group that contradict each other. whole: `format` of the whole config."""
    weights = group["weights"]
    for key, value in _NUMBERS.get(kind, {}).items():
        if weights.get(key) != value:
            raise UsageError(
                f"{where}: {kind} has {key} {value}, but weights.{key} says {weights.get(key)!r:.20}. {AGAIN}"
            )
    if kind in _NUMBERS and weights.get("symmetric") is False:
        raise UsageError(f"{where}: {kind} has no zero points, but weights.symmetric is false. Correct it there.")
    if whole not in (kind, "mixed-precision"):
        raise UsageError(
            f"{where}: format is {kind!r}, but that of the whole quantization config is {whole!r:.40}: "
            "compressed-tensors reads the first, vLLM the other. Set both to the layout of the weights."
        )
    if weights.get("dynamic"):
        raise UsageError(
            f"{where}: weights.dynamic is {weights['dynamic']!r:.20}, but the weights are stored with their scales, "
            "and vLLM has no such scheme. Set it to false."
        )
    size, order = weights.get("group_size"), weights.get("actorder")
    grouped = (
        "actorder" if order in ("group", "dynamic", True) else "group_size" if type(size) is int and size > 0 else ""
    )
    if grouped and weights.get("strategy") not in (None, "group", "tensor_group"):
        raise UsageError(
            f"{where}: weights.{grouped} is {weights[grouped]!r:.20}, and strategy {weights['strategy']!r:.20} has "
            f"no groups: compressed-tensors refuses that. Take {grouped} out, or correct strategy."
        )
    if group.get("input_activations") == {}:
        raise UsageError(
            f"{where}: input_activations is {{}}: compressed-tensors takes that for 8-bit integers, other readers for "
            "plain inputs. Write null, or the format of the inputs."
        )


def _whole(where: str, settings: dict[str, Any], name: str, least: int, default: int | None = None) -> int:
    value = settings.get(name)
    if value is None and default is not None:
        return default
    if type(value) is not int or value < least:
        raise UsageError(f"{where}: weights.{name} is {value!r:.20}, expected a whole number. {AGAIN}")
    return value


def _block(where: str, block: Any) -> tuple[int, int]:
    if not isinstance(block, list) or len(block) != 2 or any(type(extent) is not int or extent < 1 for extent in block):
        raise UsageError(f"{where}: weights.block_structure is {block!r:.40}, expected two numbers. {AGAIN}")
    return block[0], block[1]


def _activations(source: Source, module: str, args: Any) -> Activations:
    """Return how the config rounds a layer's inputs. A scale that the config does not use makes them unsupported."""
    activations = _rounding(source, module, args) if args else Activations()
    for name in (f"{module}.{part}" for part in ("input_scale", "input_zero_point", "input_global_scale")):
        if source.has(name) and not source.taken(name):
            source.take(name)
            activations = Activations(unsupported=f"{name} is there, for which its config has no use")
    return activations


def _rounding(source: Source, module: str, args: Any) -> Activations:
    """Return the rounding that the arguments `args` describe, or unsupported activations with their description."""
    if not isinstance(args, dict):
        return Activations(unsupported=f"input_activations {args!r:.40}")
    bits, strategy, dynamic, scales = (args.get(key) for key in ("num_bits", "strategy", "dynamic", "scale_dtype"))
    size, symmetric = args.get("group_size"), args.get("symmetric") is not False
    code = {("float", 8): "e4m3", ("float", 4): "e2m1", ("int", 8): "int", ("int", 4): "int"}.get(
        (str(args.get("type")), bits if type(bits) is int else 0)
    )
    common: dict[str, Any] = {"code": code, "bits": bits, "symmetric": symmetric}
    size = size if type(size) is int and 0 < size < 2**31 else 0
    grouped = strategy == "group" and size > 0
    if code is None or not (symmetric or code == "int"):
        pass
    elif dynamic is True and strategy == "tensor":
        return Activations(
            unsupported="one scale for a whole batch, as it comes (dynamic, strategy 'tensor'): a row's result would "
            "depend on the rows beside it"
        )
    elif not dynamic and strategy in ("tensor", None):
        zeros, scale = f"{module}.input_zero_point", source.scale(f"{module}.input_scale")
        _refuse_zero_points(source, zeros, symmetric)
        zero_point = 0 if symmetric else source.zero_point(zeros)
        return Activations(rounding=Rounding(**common, scale=scale, zero_point=zero_point))
    elif dynamic is True and strategy == "token":
        return Activations(rounding=Rounding(**common))
    elif dynamic is True and grouped and scales is None and code != "e2m1":
        return Activations(rounding=Rounding(**common, group_size=size))
    elif dynamic is True and grouped and scales == "torch.uint8" and size == MXFP4_BLOCK and code != "int":
        return Activations(rounding=Rounding(**common, group_size=size, rule="e8m0 rounded"))
    elif dynamic == "local" and strategy == "tensor_group" and size == NVFP4_BLOCK and code == "e2m1":
        tensor_scale = source.scale(f"{module}.input_global_scale")
        return Activations(
            rounding=Rounding(**common, group_size=size, rule="e4m3", tensor_scale=tensor_scale, tensor_divides=True)
        )
    wide = f"{bits!r:.20}-bit {args.get('type')!s:.20}{'' if symmetric else ' asymmetric'}"
    fixed = "" if dynamic is True else f", dynamic {dynamic!r:.20}"
    return Activations(unsupported=f"{wide} activations of strategy {strategy!r:.30}{fixed}")


def _refuse_zero_points(source: Source, name: str, symmetric: bool) -> None:
    if symmetric and source.has(name) and source.tensor(name).any():
        raise UsageError(
            f"{source.where(name)}: tensor {name} is not 0, but {source.format.where.name} says that these numbers "
            f"are symmetric. {AGAIN}"
        )


def _scheme_of(source: Source, schemes: list[Scheme], module: str) -> Scheme:
    """Return the scheme whose targets name the module; names come before classes such as "Linear", which fit all
    modules."""
    for named in (True, False):
        for scheme in schemes:
            for target in scheme.targets:
                by_class = not target.startswith("re:") and "." not in target and target[:1].isupper()
                if (named and name_fits(target, module, source.format.where)) or (not named and by_class):
                    return scheme
    raise UsageError(
        f"{source.where(f'{module}.weight_scale')}: {module} has quantized weights, but no target of "
        f"{source.format.where} names it. {AGAIN}"
    )


def _layer(source: Source, module: str, scheme: Scheme) -> Layer:
    """Read one layer by its scheme's format."""
    if scheme.format == _PACKED_INT:
        weight = _packed_integers(source, module, scheme)
    elif scheme.format in (_PACKED_NVFP4, _PACKED_MXFP4):
        weight = _packed_fp4(source, module, nvfp4=scheme.format == _PACKED_NVFP4)
    elif scheme.floating:
        weight = _fp8(source, module, scheme)
    else:
        weight = _integers(source, module, scheme)
    _refuse_zero_points(source, f"{module}.weight_zero_point", scheme.symmetric)
    bias, oddities = source.bias(module, weight.shape[0])
    return Layer(
        weight=weight,
        layout=scheme.format,
        bias=bias,
        activations=_activations(source, module, scheme.inputs),
        oddities=oddities,
    )


def _grid(
    source: Source, module: str, scheme: Scheme, rows: int, columns: int
) -> tuple[tuple[int, int], int, int, str]:
    """Return (shape of the scales, group size, block rows, the same in words) that the scheme gives a weight."""
    name = f"{module}.weight_scale"
    if scheme.strategy == "channel":
        return (rows, 1), 0, 1, "one scale a row"
    if scheme.strategy == "tensor":
        return (1, 1), 0, 0, "one scale a tensor"
    if scheme.strategy == "block" and scheme.block is not None:
        high, wide = scheme.block
        return (-(-rows // high), -(-columns // wide)), wide, high, f"{rows} x {columns} in blocks of {high} x {wide}"
    if scheme.strategy in ("group", "tensor_group") and scheme.group_size:
        groups = source.groups(name, columns, scheme.group_size, module)
        words = f"{columns} in_features in groups of {scheme.group_size}"
        return (rows, groups), scheme.group_size if groups > 1 else 0, 1, words
    raise UsageError(f"{source.format.where}: weights of strategy {scheme.strategy!r:.30} cannot be read. {AGAIN}")


def _scales(source: Source, module: str, shape: tuple[int, int], words: str, *dtypes: torch.dtype) -> torch.Tensor:
    """Return the scales as [rows, groups]; a single scale may be written [1] or without any extent."""
    name = f"{module}.weight_scale"
    if shape == (1, 1):
        tensor = source.tensor(name)
        return source.expect(name, dtypes or FLOATS, [1] * tensor.dim(), words).reshape(1, 1)
    return source.expect(name, dtypes or FLOATS, shape, words).contiguous()


def _packed_integers(source: Source, module: str, scheme: Scheme) -> PackedWeight:
    """Read the packed integers of one layer, of 2 to 8 bits. UsageError if the words do not hold the announced
    shape."""
    name, bits = f"{module}.weight_packed", scheme.bits
    if not 2 <= bits <= 8 or scheme.floating:
        raise UsageError(
            f"{source.format.where}: {bits}-bit weights cannot be {_PACKED_INT}, which takes 2 to 8 bits. {AGAIN}"
        )
    words = source.expect(name, (torch.int32,), (None, None))
    extents = source.expect(f"{module}.weight_shape", (torch.int64, torch.int32), (2,)).tolist()
    rows, columns = extents
    if rows != words.shape[0] or columns < 1 or rows < 1 or words.shape[1] != -(-columns * bits // 32):
        raise UsageError(
            f"{source.where(name)}: tensor {name} {list(words.shape)} does not hold {rows} x {columns} weights of "
            f"{bits} bits, which weight_shape and {source.format.where.name} announce. {AGAIN}"
        )
    shape, group_size, block_rows, meaning = _grid(source, module, scheme, rows, columns)
    scales = _scales(source, module, shape, meaning)
    zeros = None if scheme.symmetric else _packed_zeros(source, module, bits, (rows, columns), shape)
    return packed(
        source,
        name,
        code="int",
        bits=bits,
        shape=(rows, columns),
        codes=per_row_words(words)[:, : (columns * bits + 7) // 8].contiguous(),
        scales=scales,
        group_size=group_size,
        block_rows=block_rows,
        zero_points=zeros,
        g_idx=_g_idx(source, module, columns, shape[1], scheme.actorder),
    )


def _packed_zeros(
    source: Source, module: str, bits: int, weight: tuple[int, int], shape: tuple[int, int]
) -> torch.Tensor:
    """Zero points counted in stored codes, uint8 shaped like the scales."""
    name = f"{module}.weight_zero_point"
    if source.tensor(name).dtype == torch.int8:  # strategies whose zero points are not packed
        return _plain_zeros(source, module, bits, shape)
    words = source.expect(name, (torch.int32,), (-(-weight[0] * bits // 32), shape[1]), f"{bits}-bit zero points")
    return unpack_codes(per_row_words(words.T), bits, weight[0]).T.contiguous()


def _plain_zeros(source: Source, module: str, bits: int, shape: tuple[int, int]) -> torch.Tensor:
    tensor = source.tensor(f"{module}.weight_zero_point")
    extents = [1] * tensor.dim() if shape == (1, 1) else shape
    tensor = source.expect(f"{module}.weight_zero_point", (torch.int8,), extents)
    return (tensor.reshape(shape).to(torch.int16) + 2 ** (bits - 1)).contiguous()


def _g_idx(source: Source, module: str, columns: int, groups: int, actorder: Any) -> torch.Tensor | None:
    """Return the layer's g_idx; None without one, or if it is the trivial one: all -1, or groups in order."""
    name, g_idx = f"{module}.weight_g_idx", None
    if source.has(name):
        stored = source.expect(name, (torch.int32, torch.int64), (columns,)).to(torch.int32)
        plain = torch.arange(columns, dtype=torch.int32) // max(1, columns // groups)
        g_idx = None if torch.equal(stored, plain) or bool((stored == -1).all()) else stored.contiguous()
    check_activation_order(source.format.where, module, g_idx, given=source.has(name), actorder=actorder)
    return g_idx


def _integers(source: Source, module: str, scheme: Scheme) -> PackedWeight:
    """Read a layer of int8 codes, one a byte."""
    name = f"{module}.weight"
    codes = int8_codes(source, name, scheme.bits, source.format.where.name)
    shape, group_size, block_rows, meaning = _grid(source, module, scheme, *codes["shape"])
    return packed(
        source,
        name,
        **codes,
        scales=_scales(source, module, shape, meaning),
        group_size=group_size,
        block_rows=block_rows,
        zero_points=None if scheme.symmetric else _plain_zeros(source, module, scheme.bits, shape),
    )


def _fp8(source: Source, module: str, scheme: Scheme) -> PackedWeight:
    """Read a layer of 8-bit floats, with float scales or, for MXFP8, exponents."""
    name = f"{module}.weight"
    codes = float8_codes(source, name)
    if scheme.bits != 8:
        raise UsageError(
            f"{source.where(name)}: tensor {name} holds 8-bit floats, but {source.format.where.name} says "
            f"{scheme.bits} bits. {AGAIN}"
        )
    shape, group_size, block_rows, meaning = _grid(source, module, scheme, *codes["shape"])
    dtypes = (torch.uint8,) if scheme.format == _MXFP8 else (*FLOATS, torch.float8_e8m0fnu)
    scales = as_exponents(_scales(source, module, shape, meaning, *dtypes))
    return packed(source, name, **codes, scales=scales, group_size=group_size, block_rows=block_rows)


def _packed_fp4(source: Source, module: str, *, nvfp4: bool) -> PackedWeight:
    """Read a layer of 4-bit floats, two a byte: NVFP4 with its global scale, or MXFP4."""
    name, block = f"{module}.weight_packed", NVFP4_BLOCK if nvfp4 else MXFP4_BLOCK
    dtype = torch.float8_e4m3fn if nvfp4 else torch.uint8
    fields = float4_fields(source, name, f"{module}.weight_scale", dtype, block)
    tensor_scale = source.expect(f"{module}.weight_global_scale", (torch.float32,), (1,)).reshape(()) if nvfp4 else None
    return packed(source, name, **fields, tensor_scale=tensor_scale, tensor_divides=nvfp4)
