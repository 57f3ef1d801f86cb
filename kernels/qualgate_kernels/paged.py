"""Attention over keys and values that lie in blocks: rows of any sequences side by side, each as if it were alone.

A sequence's positions lie in blocks of SLOTS, wherever there is room; a table says where. A pass has rows of several
sequences: one that decodes, a chunk of a prompt, a draft to be checked. Each row sees its own sequence up to and with
itself. Sums run over positions in their order and over nothing else, so no row's bits depend on its neighbours, on how
a sequence was cut into passes, or on the threads.

`attend_torch` and `keep_torch` are the specification, cpu/paged.py the kernel in C, paged_gpu.py that for GPUs;
`dispatch.attend_paged` chooses.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from qualgate_kernels.pages import zeros
from qualgate_kernels.slots import SLOTS

MOST_DIMS = 1024
GPU_DIMS = 256  # the most that paged_gpu.py takes
DTYPES = (torch.float32, torch.bfloat16)  # of keys and values; queries, products and sums are float32 with either


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Blocks:
    """Keys and values of one layer, both float32 or both bfloat16. The record is fixed, `keep` fills its tensors.

    keys: [blocks, kv_heads, head_dim, SLOTS]; values: [blocks, kv_heads, SLOTS, head_dim]
    """

    keys: torch.Tensor
    values: torch.Tensor

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
        return self.keys.shape[2]


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
    *, dtype: torch.dtype = torch.float32, device: torch.device | str = "cpu",
) -> Blocks:  # fmt: skip
    """Empty ones. head_dim: a multiple of 16; dtype: one of DTYPES."""
    for name, value, most in (
        ("count", count, 2**31 - 1),
        ("kv_heads", kv_heads, 65_536),
        ("head_dim", head_dim, MOST_DIMS),
    ):
        if type(value) is not int or not 1 <= value <= most:
            raise ValueError(f"{name}: expected 1 to {most}, got {value!r:.40}")
    if head_dim % 16:
        raise ValueError(f"head_dim: expected a multiple of 16, got {head_dim}")
    if dtype not in DTYPES:
        raise ValueError(f"dtype: expected float32 or bfloat16, got {dtype}")
    return Blocks(
        keys=_zeros((count, kv_heads, head_dim, SLOTS), dtype, torch.device(device)),
        values=_zeros((count, kv_heads, SLOTS, head_dim), dtype, torch.device(device)),
    )


def _zeros(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Attention reads all over them: looking up small pages took an eighth of its time."""
    return zeros(shape, dtype) if device.type == "cpu" else torch.zeros(shape, dtype=dtype, device=device)


def keep_torch(blocks: Blocks, places: Places, key: torch.Tensor, value: torch.Tensor) -> None:
    """Write the rows' keys and values, float32 [rows, kv_heads, head_dim], where they stand: the torch twin.

    They are rounded to the blocks' dtype.
    """
    check_kept(blocks, places, key, value)
    block, slot = places.slots // SLOTS, places.slots % SLOTS
    blocks.keys[block, :, :, slot] = key.to(blocks.keys.dtype)
    blocks.values[block, :, slot] = value.to(blocks.values.dtype)


def attend_torch(query: torch.Tensor, blocks: Blocks, places: Places, seen: Seen) -> torch.Tensor:
    """Each row's attention to what it sees of its sequence: the torch twin, a row at a time.

    query: float32 [rows, heads, head_dim], contiguous. Returns the same shape.
    """
    check(query, blocks, places, seen)
    group = query.shape[1] // blocks.kv_heads
    out = torch.empty_like(query)
    for row, (sequence, position) in enumerate(zip(places.sequence.tolist(), places.position.tolist(), strict=True)):
        first = max(0, position - seen.window + 1) if seen.window else 0
        table = places.table[sequence, first // SLOTS : position // SLOTS + 1].long()
        here = slice(first % SLOTS, position - first // SLOTS * SLOTS + 1)
        keys = blocks.keys[table].permute(1, 2, 0, 3).flatten(2)[..., here].float()  # [kv_heads, dim, positions]
        values = blocks.values[table].transpose(0, 1).flatten(1, 2)[:, here].float()
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
    wanted = (rows, heads, blocks.head_dim)
    if query.dtype != torch.float32 or tuple(query.shape) != wanted or heads < 1 or heads % blocks.kv_heads:
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
    _check_places(blocks, places)


def check_kept(blocks: Blocks, places: Places, key: torch.Tensor, value: torch.Tensor) -> None:
    """ValueError for arguments that no path takes."""
    wanted = (len(places.position), blocks.kv_heads, blocks.head_dim)
    for name, tensor in (("key", key), ("value", value)):
        if tensor.dtype != torch.float32 or tuple(tensor.shape) != wanted:
            raise ValueError(f"{name}: expected float32 {list(wanted)}, got {tensor.dtype} {list(tensor.shape)}")
        _check_device(name, tensor, blocks)
    _check_places(blocks, places)


def _check_device(name: str, tensor: torch.Tensor, blocks: Blocks) -> None:
    if tensor.device != blocks.keys.device:
        raise ValueError(f"{name}: expected a tensor on {blocks.keys.device}, got {tensor.device}")


def _check_places(blocks: Blocks, places: Places) -> None:
    table, sequence, position = places.table, places.sequence, places.position
    for name, tensor, dims in (("table", table, 2), ("sequence", sequence, 1), ("position", position, 1)):
        if tensor.dtype != torch.int32 or tensor.dim() != dims or not tensor.is_contiguous() or not tensor.numel():
            raise ValueError(f"{name}: expected int32 of {dims} dimensions, contiguous, not empty")
        if tensor.device != table.device or tensor.device not in (torch.device("cpu"), blocks.keys.device):
            raise ValueError(f"{name}: expected it with the others, on the CPU or {blocks.keys.device}")
    if len(sequence) != len(position) or int(sequence.min()) < 0 or int(sequence.max()) >= len(table):
        raise ValueError(f"sequence: expected one of {len(table)} rows of the table for each of {len(position)} rows")
    if int(position.min()) < 0 or int(position.max()) >= table.shape[1] * SLOTS:
        raise ValueError(f"position: expected 0 to {table.shape[1] * SLOTS - 1}, the table's width")
    same = sequence[1:] == sequence[:-1]
    if bool((same & (position[1:] <= position[:-1])).any()):
        raise ValueError("position: expected ascending numbers in rows of one sequence that follow each other")
    block = places.slots // SLOTS
    if int(block.min()) < 0 or int(block.max()) >= blocks.count:
        raise ValueError(f"table: expected blocks 0 to {blocks.count - 1} where rows stand")
