"""bitsandbytes folders: LLM.int8() and NF4.

int8   weight int8 [N, K], SCB float32 [N] (absmax of the row): weight * SCB / 127
nf4    weight uint8 [N * K / 2, 1], the flattened matrix, HIGH nibble first
       weight.absmax float32 [blocks], of blocks of `blocksize` flattened weights, or, nested, uint8 codes of them:
       absmax = nested_quant_map[code] * nested_absmax[block / nested_blocksize] + nested_offset
       weight.quant_state.bitsandbytes__nf4 uint8, JSON with shape, blocksize, quant_type, nested_*

Blocks run over the flattened matrix. Where a row is no multiple of the block, the scales are repeated for the largest
group that divides both, which changes no weight.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import gcd
from typing import Any

import torch

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.readers.source import AGAIN, FLOATS, Activations, Layer, Source, packed
from qualgate_kernels.dequantize import NF4

_STATE = ".weight.quant_state.bitsandbytes__"
_LLM_INT8 = Activations(unsupported="LLM.int8() inputs (int8, with columns of outliers kept apart)")


def read(source: Source) -> Iterator[tuple[str, Layer]]:
    """Yield every quantized layer, by module name."""
    settings = source.format.settings
    if settings.get("load_in_4bit") and settings.get("load_in_8bit"):
        raise UsageError(
            f"{source.format.where} says load_in_4bit and load_in_8bit: transformers refuses that, vLLM takes 8 bits. "
            "Keep the one that fits the weights, and set the other to false."
        )
    for module in source.modules(".SCB"):
        yield module, _int8(source, module)
    for module in source.modules(f"{_STATE}nf4"):
        yield module, _nf4(source, module)
    for module in source.modules(f"{_STATE}fp4"):
        raise NotInThisVersion(
            f"{source.folder}: {module}.weight holds bitsandbytes' own fp4, which is not read. Load the model with "
            'bnb_4bit_quant_type="nf4" and save it again.'
        )


def _int8(source: Source, module: str) -> Layer:
    """Read one LLM.int8() layer. Raises NotInThisVersion for weights that are permuted for one kind of GPU."""
    name = f"{module}.weight"
    codes = source.expect(name, (torch.int8,), (None, None))
    rows, columns = codes.shape
    absmax = source.expect(f"{module}.SCB", (torch.float32,), (rows,), "one absmax a row")
    if source.has(f"{module}.weight_format"):
        layout = source.tensor(f"{module}.weight_format")
        if layout.numel() != 1 or int(layout) != 0:
            raise NotInThisVersion(
                f"{source.where(name)}: {module}.weight_format says that {name} is permuted for one kind of GPU; only "
                "row-major weights are read. Save the model again with a newer bitsandbytes."
            )
    bias, oddities = source.bias(module, rows)
    return Layer(
        weight=packed(
            source,
            name,
            code="int",
            bits=8,
            shape=(rows, columns),
            codes=(codes.to(torch.int16) + 128).to(torch.uint8),
            scales=(absmax * (1 / 127)).reshape(rows, 1),
            group_size=0,
        ),
        layout="bitsandbytes int8",
        bias=bias,
        activations=_LLM_INT8,
        oddities=oddities,
    )


def _nf4(source: Source, module: str) -> Layer:
    """Read one NF4 layer; where blocks cross rows, scales are repeated for smaller groups."""
    name, kind = f"{module}.weight", source.format.settings.get("bnb_4bit_quant_type", "nf4")
    if kind != "nf4":
        raise UsageError(
            f"{source.format.where} says bnb_4bit_quant_type {kind!r:.20}, but the weights of {module} are stored as "
            "'nf4'. Correct it there, or save the checkpoint again."
        )
    state = _state(source, f"{module}{_STATE}nf4")
    rows, columns = _shape(source, name, state)
    block = _whole(source, name, state, "blocksize")
    tensor = source.expect(name, (torch.uint8, *FLOATS), [None] * source.tensor(name).dim(), "bnb_4bit_quant_storage")
    stored = tensor.contiguous().view(torch.uint8).flatten()
    if rows * columns % 2 or stored.numel() * 2 != rows * columns:
        raise UsageError(
            f"{source.where(name)}: tensor {name} holds {stored.numel() * 2} 4-bit weights, but its state says "
            f"{rows} x {columns}. {AGAIN}"
        )
    levels = source.expect(f"{name}.quant_map", (torch.float32,), (16,))
    if not torch.equal(levels, torch.tensor(NF4)):
        raise NotInThisVersion(f"{source.where(name)}: {name}.quant_map is not NF4's, so its codes mean other numbers.")
    blocks = -(-rows * columns // block)
    scales = _absmax(source, name, state, blocks)
    group = gcd(block, columns)
    block_of_group = torch.arange(rows * columns // group) * group // block
    nibbles = (stored >> 4) | (stored << 4)  # low nibble first from here on
    if columns % 2:
        raise NotInThisVersion(f"{source.where(name)}: {name} has {columns} in_features; an odd number is not read.")
    bias, oddities = source.bias(module, rows)
    if group != block:
        oddities += (f"blocks of {block} weights that cross rows of {columns}: scales repeated for groups of {group}",)
    return Layer(
        weight=packed(
            source,
            name,
            code="nf4",
            bits=4,
            shape=(rows, columns),
            codes=nibbles.view(rows, columns // 2),
            scales=scales[block_of_group].view(rows, -1),
            group_size=group if group < columns else 0,
        ),
        layout="bitsandbytes nf4, nested" if "nested_blocksize" in state else "bitsandbytes nf4",
        bias=bias,
        oddities=oddities,
    )


def _absmax(source: Source, name: str, state: dict[str, Any], blocks: int) -> torch.Tensor:
    """float32 [blocks]. Nested ones are codes of a second quantization, dequantized as the library does."""
    if "nested_blocksize" not in state:
        return source.expect(f"{name}.absmax", (torch.float32,), (blocks,), "one a block")
    codes = source.expect(f"{name}.absmax", (torch.uint8,), (blocks,), "one a block")
    nested = _whole(source, name, state, "nested_blocksize")
    levels = source.expect(f"{name}.nested_quant_map", (torch.float32,), (256,))
    scales = source.expect(f"{name}.nested_absmax", (torch.float32,), (-(-blocks // nested),))
    offset = state.get("nested_offset", 0.0)
    if not isinstance(offset, int | float) or not abs(offset) < 1e30:
        raise UsageError(f"{source.where(name)}: {name} has nested_offset {offset!r:.30}, expected a number. {AGAIN}")
    return levels[codes.long()] * scales[torch.arange(blocks) // nested] + torch.tensor(offset, dtype=torch.float32)


def _state(source: Source, name: str) -> dict[str, Any]:
    """Return the JSON that the tensor `name` holds as bytes. UsageError for anything but an object."""
    raw = source.expect(name, (torch.uint8,), (None,))
    try:
        state = json.loads(bytes(raw.tolist()))
    except (ValueError, RecursionError):
        state = None
    if not isinstance(state, dict):
        raise UsageError(f"{source.where(name)}: tensor {name} is not JSON, so its weights cannot be read. {AGAIN}")
    return state


def _shape(source: Source, name: str, state: dict[str, Any]) -> tuple[int, int]:
    shape = state.get("shape")
    if not isinstance(shape, list) or len(shape) != 2 or any(type(extent) is not int or extent < 1 for extent in shape):
        raise UsageError(f"{source.where(name)}: {name} has shape {shape!r:.40}, expected two sizes. {AGAIN}")
    return shape[0], shape[1]


def _whole(source: Source, name: str, state: dict[str, Any], key: str) -> int:
    value = state.get(key)
    if type(value) is not int or not 1 <= value <= 2**20:
        raise UsageError(f"{source.where(name)}: {name} has {key} {value!r:.30}, expected 1 to 1048576. {AGAIN}")
    return value
