"""Attention over keys and values that lie in blocks: rows of any sequences side by side, each as if it were alone.

A sequence's positions lie in blocks of SLOTS, wherever there is room; a table says where. A pass has rows of several
sequences: one that decodes, a chunk of a prompt, a draft to be checked. Each row sees its own sequence up to and with
itself. Sums run over positions in their order and over nothing else, so no row's bits depend on its neighbours, on how
a sequence was cut into passes, or on the threads.

Keys and values are kept in one of the formats of kept.py. Every row sees those that are kept, itself too; what it
computes of them is float32 with any.

`attend_torch` and `keep_torch` are the specification, cpu/paged.py the kernel in C, paged_gpu.py that for GPUs;
`dispatch.attend_paged` chooses.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from qualgate_kernels.kept import Form, form_of
from qualgate_kernels.kept_numbers import kept, numbers
from qualgate_kernels.pages import zeros
from qualgate_kernels.slots import SLOTS

MOST_DIMS = 1024
GPU_DIMS = 256  # the most that paged_gpu.py takes
LEAST_SCALE, MOST_SCALE = 2.0**-100, 2.0**100  # of fp8: float32 holds each code's number


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blocks:
    """Keys and values of one layer in one format of kept.FORMS. The record is fixed, `keep` fills its tensors.

    keys: [blocks, kv_heads, head_dim, SLOTS]; values: [blocks, kv_heads, SLOTS, head_dim]; of int4 half of head_dim, an
    element the numbers d in its low and d + head_dim / 2 in its high bits
    key_scales, value_scales: bfloat16, of int8 [blocks, kv_heads, SLOTS], of int4 [blocks, kv_heads, 2, SLOTS] scales
    and least numbers, else None; key_scale, value_scale: fp8's, else 1.0

    ValueError for tensors that do not fit the format or each other.
    """

    keys: torch.Tensor
    values: torch.Tensor
    form: str = "float32"
    key_scales: torch.Tensor | None = None
    value_scales: torch.Tensor | None = None
    key_scale: float = 1.0
    value_scale: float = 1.0

    def __post_init__(self) -> None:
        _check_blocks(self)

    @property
    def count(self) -> int:
        """Blocks, in use or not."""
        return self.keys.shape[0]

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values; queries may have a multiple of them."""
        return self.keys.shape[1]

    @property
    def head_dim(self) -> int:
        """Numbers of a key, and of a value."""
        return self.keys.shape[2] * form_of(self.form).packed

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """All that it has, by field; a block is a row of each."""
        named = {name: getattr(self, name) for name in ("keys", "values", "key_scales", "value_scales")}
        return {name: tensor for name, tensor in named.items() if tensor is not None}

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    def first(self, count: int) -> Blocks:
        """So many of them, in the same memory."""
        return replace(self, **{name: tensor[:count] for name, tensor in self.tensors.items()})

    def copy(self, sources: torch.Tensor, targets: torch.Tensor) -> None:
        """Copy blocks `sources` into blocks `targets`, int64 [n] each, as all are before the first is written to."""
        for tensor in self.tensors.values():
            tensor[targets] = tensor[sources]

    def at(self, slots: torch.Tensor) -> dict[str, torch.Tensor]:
        """What is kept at these, by field, a row each: a copy. slots: int64 [n], as `Places.slots`."""
        return {name: tensor[_where(name, slots)] for name, tensor in self.tensors.items()}

    def put(self, slots: torch.Tensor, what: Mapping[str, torch.Tensor]) -> None:
        """Keep what `at` may have given."""
        for name, tensor in what.items():
            self.tensors[name][_where(name, slots)] = tensor


def _where(name: str, slots: torch.Tensor) -> tuple[Any, ...]:
    """Of slots in the tensor of that field, which has them last, but values before their numbers."""
    block, slot = slots // SLOTS, slots % SLOTS
    return (block, slice(None), slot) if name == "values" else (block, ..., slot)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Places:
    """Where the rows of a pass stand: int32, contiguous, on the CPU or where the blocks are.

    table: [sequences, width], the block of each SLOTS positions; sequence: [rows], a row of the table
    position: [rows], ascending within rows of one sequence that follow each other
    """

    table: torch.Tensor
    sequence: torch.Tensor
    position: torch.Tensor

    @property
    def slots(self) -> torch.Tensor:
        """int64 [rows]: block * SLOTS + the place in it."""
        block = self.table[self.sequence.long(), self.position.long() // SLOTS]
        return block.long() * SLOTS + self.position % SLOTS

    def check(self, count: int, device: torch.device) -> None:
        """ValueError for places that no path takes. count: blocks that there are; device: where these are."""
        table, sequence, position = self.table, self.sequence, self.position
        for name, tensor, dims in (("table", table, 2), ("sequence", sequence, 1), ("position", position, 1)):
            if tensor.dtype != torch.int32 or tensor.dim() != dims or not tensor.is_contiguous() or not tensor.numel():
                raise ValueError(f"{name}: expected int32 of {dims} dimensions, contiguous, not empty")
            if tensor.device != table.device or tensor.device not in (torch.device("cpu"), device):
                raise ValueError(f"{name}: expected it with the others, on the CPU or {device}")
        if len(sequence) != len(position) or int(sequence.min()) < 0 or int(sequence.max()) >= len(table):
            raise ValueError(
                f"sequence: expected one of {len(table)} rows of the table for each of {len(position)} rows"
            )
        if int(position.min()) < 0 or int(position.max()) >= table.shape[1] * SLOTS:
            raise ValueError(f"position: expected 0 to {table.shape[1] * SLOTS - 1}, the table's width")
        same_sequence = sequence[1:] == sequence[:-1]
        if bool((same_sequence & (position[1:] <= position[:-1])).any()):
            raise ValueError("position: expected ascending numbers in rows of one sequence that follow each other")
        block = self.slots // SLOTS
        if int(block.min()) < 0 or int(block.max()) >= count:
            raise ValueError(f"table: expected blocks 0 to {count - 1} where rows stand")


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Seen:
    """How a model's attention weighs what a row sees.

    scale: of the logits; soft_cap: they become soft_cap * tanh(logit / soft_cap), 0 = they stay; window: positions
    seen, the row's own included, 0 = all before it; sinks: float32 [heads], logits that take weight and give nothing
    """

    scale: float
    soft_cap: float = 0.0
    window: int = 0
    sinks: torch.Tensor | None = None


def new_blocks(
    count: int, kv_heads: int, head_dim: int,
    *, form: str = "float32", key_scale: float = 1.0, value_scale: float = 1.0, device: torch.device | str = "cpu",
) -> Blocks:  # fmt: skip
    """Return empty blocks. head_dim: a multiple of 16; form: one of kept.FORMS; key_scale, value_scale: for fp8."""
    for name, value, most in (
        ("count", count, 2**31 - 1),
        ("kv_heads", kv_heads, 65_536),
        ("head_dim", head_dim, MOST_DIMS),
    ):
        if type(value) is not int or not 1 <= value <= most:
            raise ValueError(f"{name}: expected 1 to {most}, got {value!r:.40}")
    if head_dim % 16:
        raise ValueError(f"head_dim: expected a multiple of 16, got {head_dim}")
    kept_form, where = form_of(form), torch.device(device)
    shapes = _shapes(kept_form, count, kv_heads, head_dim)
    tensors = {name: _zeros(shape, dtype, where) for name, (dtype, shape) in shapes.items()}
    return Blocks(form=form, key_scale=key_scale, value_scale=value_scale, **tensors)


def _shapes(form: Form, count: int, kv_heads: int, dim: int) -> dict[str, tuple[torch.dtype, tuple[int, ...]]]:
    """Return dtype and shape of each tensor of the blocks, by field."""
    dtype, elements = getattr(torch, form.dtype), dim // form.packed
    shapes: dict[str, tuple[torch.dtype, tuple[int, ...]]] = {
        "keys": (dtype, (count, kv_heads, elements, SLOTS)),
        "values": (dtype, (count, kv_heads, SLOTS, elements)),
    }
    if form.scales:
        scales = (count, kv_heads, SLOTS) if form.scales == 1 else (count, kv_heads, form.scales, SLOTS)
        shapes |= dict.fromkeys(("key_scales", "value_scales"), (torch.bfloat16, scales))
    return shapes


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Attention reads all over them: looking up small pages took an eighth of its time."""
    return zeros(shape, dtype) if device.type == "cpu" else torch.zeros(shape, dtype=dtype, device=device)


def keep_torch(blocks: Blocks, places: Places, key: torch.Tensor, value: torch.Tensor) -> None:
    """Write the rows' keys and values, float32 [rows, kv_heads, head_dim], where they stand, in the blocks' format: the
    torch twin."""
    check_kept(blocks, places, key, value)
    lay(blocks, places.slots, key, value)


def lay(blocks: Blocks, slots: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> None:
    """As `keep_torch`, of arguments that were seen. slots: `Places.slots`."""
    form = form_of(blocks.form)
    keys, key_scales = kept(form, key, blocks.key_scale)
    values, value_scales = kept(form, value, blocks.value_scale)
    blocks.put(slots, {"keys": keys, "values": values})
    for name, scales in (("key_scales", key_scales), ("value_scales", value_scales)):
        if scales is not None:
            blocks.put(slots, {name: scales.view(len(slots), *blocks.tensors[name].shape[1:-1])})


def numbers_of(blocks: Blocks, which: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the numbers in blocks `which`, int64 [n]: float32 keys [n, kv_heads, head_dim, SLOTS] and values [n,
    kv_heads, SLOTS, head_dim]."""
    form = form_of(blocks.form)
    key_scales, value_scales = (
        None if scales is None else scales[which] for scales in (blocks.key_scales, blocks.value_scales)
    )
    keys = numbers(form, blocks.keys[which], key_scales, blocks.key_scale, -2)
    return keys, numbers(form, blocks.values[which], value_scales, blocks.value_scale, -1)


def attend_torch(query: torch.Tensor, blocks: Blocks, places: Places, seen: Seen) -> torch.Tensor:
    """Return each row's attention to what it sees of its sequence: the torch twin, a row at a time.

    query: float32 [rows, heads, head_dim], contiguous. Returns the same shape.
    """
    check(query, blocks, places, seen)
    group = query.shape[1] // blocks.kv_heads
    out = torch.empty_like(query)
    for row, (sequence, position) in enumerate(zip(places.sequence.tolist(), places.position.tolist(), strict=True)):
        first = max(0, position - seen.window + 1) if seen.window else 0
        table = places.table[sequence, first // SLOTS : position // SLOTS + 1].long()
        visible = slice(first % SLOTS, position - first // SLOTS * SLOTS + 1)
        keys, values = numbers_of(blocks, table)
        keys = keys.permute(1, 2, 0, 3).flatten(2)[..., visible]  # [kv_heads, dim, positions]
        values = values.transpose(0, 1).flatten(1, 2)[:, visible]
        logits = query[row].view(blocks.kv_heads, group, -1) @ keys * seen.scale
        if seen.soft_cap:
            logits = seen.soft_cap * torch.tanh(logits / seen.soft_cap)
        if seen.sinks is not None:
            logits = torch.cat([logits, seen.sinks.view(blocks.kv_heads, group, 1)], dim=-1)
        weights = logits.softmax(-1)[..., : values.shape[1]]
        out[row] = (weights @ values).flatten(0, 1)
    return out


def check(query: torch.Tensor, blocks: Blocks, places: Places, seen: Seen) -> None:
    """ValueError for arguments that no path takes."""
    rows, heads = len(places.position), query.shape[1] if query.dim() == 3 else 0
    expected = (rows, heads, blocks.head_dim)
    if query.dtype != torch.float32 or tuple(query.shape) != expected or heads < 1 or heads % blocks.kv_heads:
        raise ValueError(
            f"query: expected float32 [{rows}, a multiple of {blocks.kv_heads}, {blocks.head_dim}], got {query.dtype} "
            f"{list(query.shape)}"
        )
    if not query.is_contiguous():
        raise ValueError(f"query: expected contiguous, got strides {query.stride()}")
    _check_device("query", query, blocks)
    if seen.window < 0 or not seen.soft_cap >= 0:
        raise ValueError(f"window and soft_cap: expected 0 or more, got {seen.window} and {seen.soft_cap}")
    if seen.sinks is not None:
        if seen.sinks.dtype != torch.float32 or tuple(seen.sinks.shape) != (heads,) or not seen.sinks.is_contiguous():
            raise ValueError(
                f"sinks: expected float32 [{heads}], contiguous, got {seen.sinks.dtype} {list(seen.sinks.shape)}"
            )
        _check_device("sinks", seen.sinks, blocks)
    places.check(blocks.count, blocks.keys.device)


def check_kept(blocks: Blocks, places: Places, key: torch.Tensor, value: torch.Tensor) -> None:
    """ValueError for arguments that no path takes."""
    expected = (len(places.position), blocks.kv_heads, blocks.head_dim)
    for name, tensor in (("key", key), ("value", value)):
        if tensor.dtype != torch.float32 or tuple(tensor.shape) != expected:
            raise ValueError(f"{name}: expected float32 {list(expected)}, got {tensor.dtype} {list(tensor.shape)}")
        _check_device(name, tensor, blocks)
    places.check(blocks.count, blocks.keys.device)


def _check_blocks(blocks: Blocks) -> None:
    """Raise ValueError for blocks of another layout than their format's, because C does not check them."""
    form, keys = form_of(blocks.form), blocks.keys
    if keys.dim() != 4:
        raise ValueError(f"blocks: expected keys of 4 dimensions, got {list(keys.shape)}")
    expected = _shapes(form, keys.shape[0], keys.shape[1], blocks.head_dim)
    if blocks.tensors.keys() != expected.keys():
        raise ValueError(f"blocks: expected {', '.join(expected)} of {form.name}, got {', '.join(blocks.tensors)}")
    for name, (dtype, shape) in expected.items():
        tensor = blocks.tensors[name]
        if tensor.dtype != dtype or tuple(tensor.shape) != shape or not tensor.is_contiguous():
            raise ValueError(
                f"blocks: expected {name} of {form.name} {dtype} {list(shape)}, contiguous, got {tensor.dtype} "
                f"{list(tensor.shape)}"
            )
        _check_device(name, tensor, blocks)
    for name, scale in (("key_scale", blocks.key_scale), ("value_scale", blocks.value_scale)):
        if form.name != "fp8" and scale != 1.0:
            raise ValueError(f"{name}: expected 1.0, which only fp8 has otherwise, got {scale!r:.40}")
        if type(scale) is not float or not LEAST_SCALE <= scale <= MOST_SCALE:
            raise ValueError(f"{name}: expected {LEAST_SCALE} to {MOST_SCALE}, got {scale!r:.40}")


def _check_device(name: str, tensor: torch.Tensor, blocks: Blocks) -> None:
    if tensor.device != blocks.keys.device:
        raise ValueError(f"{name}: expected a tensor on {blocks.keys.device}, got {tensor.device}")
