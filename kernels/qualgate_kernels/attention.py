"""Attention over a quantized key-value cache: decode, verify and prefill rows, all with the same bits.

A position is quantized when it is written, by itself: no later token changes an earlier one, and prefill attends to
what decoding will find. Rows meet the cache in tiles of TILE positions, in order; SPAN positions make a partial result
(highest logit, sum of weights, weighted values), and partial results are combined in ascending order. None of this
depends on the number of rows, so a prefill or verify row equals the decode row to the bit.

`attend_torch` is the specification, attention_gpu.py the kernel for GPUs; `dispatch.attend` chooses.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch

Format = Literal["int8", "fp8", "int4"]
FORMATS: dict[Format, tuple[torch.dtype, float]] = {  # how codes are kept, and the largest of them
    "int8": (torch.int8, 127.0),
    "fp8": (torch.float8_e4m3fn, 448.0),
    "int4": (torch.uint8, 7.0),  # -7 to 7, plus 8; two in a byte
}
TILE, SPAN = 64, 256  # positions
PACK = 16  # rows of one product: those of a key head's query heads, side by side
QUERY_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class QuantizedCache:
    """Keys and values of one layer. The record is fixed, `write` fills its tensors.

    keys, values: codes [batch, heads, capacity, bytes]; bytes = head_dim, for int4 head_dim / 2: dimension d in the
        low half of byte d, dimension d + head_dim / 2 in the high half
    value_scales: float32 [batch, heads, capacity]; key_scales: the same, or None with key_channel_scales
    key_channel_scales: float32 [heads, head_dim], fixed at creation; None: a scale for each position and head
    """

    format: Format
    head_dim: int
    keys: torch.Tensor
    values: torch.Tensor
    value_scales: torch.Tensor
    key_scales: torch.Tensor | None
    key_channel_scales: torch.Tensor | None

    @property
    def batch(self) -> int:
        """Rows of prompts, which share nothing."""
        return self.keys.shape[0]

    @property
    def heads(self) -> int:
        """Heads of keys and values; a query may have a multiple of them."""
        return self.keys.shape[1]

    @property
    def capacity(self) -> int:
        """Positions it holds, a multiple of a tile."""
        return self.keys.shape[2]

    @property
    def nbytes(self) -> int:
        """Bytes held, filled or not, scales included."""
        tensors = (self.keys, self.values, self.value_scales, self.key_scales, self.key_channel_scales)
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def new_cache(
    format: Format, batch: int, heads: int, capacity: int, head_dim: int,
    *, key_channel_scales: torch.Tensor | None = None, device: torch.device | str = "cpu",
) -> QuantizedCache:  # fmt: skip
    """An empty cache; its capacity is rounded up to whole tiles. head_dim: a multiple of 32, at most 256."""
    if format not in FORMATS:
        raise ValueError(f"format: expected one of {', '.join(FORMATS)}, got {format!r:.40}")
    for name, value in (("batch", batch), ("heads", heads), ("capacity", capacity)):
        if type(value) is not int or not 1 <= value < 2**31 - TILE:
            raise ValueError(f"{name}: expected 1 or more, got {value!r:.40}")
    if type(head_dim) is not int or not 32 <= head_dim <= 256 or head_dim % 32:
        raise ValueError(f"head_dim: expected a multiple of 32 from 32 to 256, got {head_dim!r:.40}")
    if key_channel_scales is not None:
        if key_channel_scales.dtype != torch.float32 or tuple(key_channel_scales.shape) != (heads, head_dim):
            raise ValueError(
                f"key_channel_scales: expected float32 [{heads}, {head_dim}], "
                f"got {key_channel_scales.dtype} {list(key_channel_scales.shape)}"
            )
        if not bool((key_channel_scales.isfinite() & (key_channel_scales > 0)).all()):
            raise ValueError("key_channel_scales: expected finite numbers above 0")
        key_channel_scales = key_channel_scales.to(device).contiguous()
    capacity = -(-capacity // TILE) * TILE
    dtype, _ = FORMATS[format]
    width = head_dim // 2 if format == "int4" else head_dim

    def empty() -> torch.Tensor:
        return torch.zeros(batch, heads, capacity, width, dtype=torch.uint8, device=device).view(dtype)

    def scales() -> torch.Tensor:
        return torch.zeros(batch, heads, capacity, device=device)

    return QuantizedCache(
        format=format, head_dim=head_dim, keys=empty(), values=empty(), value_scales=scales(),
        key_scales=scales() if key_channel_scales is None else None, key_channel_scales=key_channel_scales,
    )  # fmt: skip


def write(cache: QuantizedCache, start: torch.Tensor, keys: torch.Tensor, values: torch.Tensor) -> None:
    """Quantize and keep these positions.

    start: int64 [batch], the position of each sequence's first new row; keys, values: [batch, heads, rows, head_dim].
    A channel beyond its fixed scale is clipped. NaN and infinity are refused.
    """
    wanted = (cache.batch, cache.heads, keys.shape[2] if keys.dim() == 4 else 0, cache.head_dim)
    for name, tensor in (("keys", keys), ("values", values)):
        if tuple(tensor.shape) != wanted or not tensor.is_floating_point() or not wanted[2]:
            raise ValueError(
                f"{name}: expected floats [{cache.batch}, {cache.heads}, rows, {cache.head_dim}], "
                f"got {tensor.dtype} {list(tensor.shape)}"
            )
        if not bool(tensor.isfinite().all()):
            raise ValueError(f"{name}: expected finite numbers")
    _check_start(cache, start, wanted[2])
    places = start[:, None] + torch.arange(wanted[2], device=start.device)
    rows = torch.arange(cache.batch, device=start.device)[:, None]
    most = FORMATS[cache.format][1]

    def keep(codes: torch.Tensor, into: torch.Tensor) -> None:
        into.view(torch.uint8)[rows, :, places] = codes.view(torch.uint8).transpose(1, 2)

    def scaled(tensor: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
        scale = tensor.float().abs().amax(-1) / most
        into[rows, :, places] = scale.transpose(1, 2)
        # Nothing but zeros, or numbers so small that their scale is not a normal float: all codes are zero.
        return tensor.float() / torch.where(scale < 2**-126, torch.inf, scale)[..., None]

    if cache.key_channel_scales is not None:
        keep(_codes(keys.float() / cache.key_channel_scales[:, None, :], cache.format), cache.keys)
    else:
        assert cache.key_scales is not None
        keep(_codes(scaled(keys, cache.key_scales), cache.format), cache.keys)
    keep(_codes(scaled(values, cache.value_scales), cache.format), cache.values)


def attend_torch(
    query: torch.Tensor, cache: QuantizedCache, start: torch.Tensor, *, scale: float | None = None
) -> torch.Tensor:
    """Causal attention of new rows to all written up to and with themselves: the torch twin.

    query: [batch, query_heads, rows, head_dim], query_heads a multiple of the cache's; row r stands at start + r
    start: int64 [batch]; scale: of the logits, head_dim ** -0.5 by default. Returns query's shape and dtype.

    Products of numbers rounded to query's dtype, summed in float32.

    Rounded are: query, times the keys' channel scales where there are such; weights; values. Codes are exact in every
    dtype, and a position's key scale goes on the logits in float32.
    """
    scale = check(query, cache, start, scale)
    batch, query_heads, rows, dim = query.shape
    dtype, heads, group = query.dtype, cache.heads, query_heads // cache.heads
    packs = -(-rows * group // PACK)
    packed = query.view(batch, heads, group, rows, dim).transpose(2, 3)  # row by row, a row's query heads together
    if cache.key_channel_scales is not None:
        packed = (packed.float() * cache.key_channel_scales[:, None, None, :]).to(dtype)
    packed = packed.reshape(batch, heads, rows * group, dim).float()
    packed = torch.nn.functional.pad(packed, (0, 0, 0, packs * PACK - rows * group)).view(
        batch, heads, packs, PACK, dim
    )
    place = torch.arange(packs * PACK, device=query.device).view(packs, PACK) // group
    limit = start[:, None, None] + place.clamp(max=rows - 1)  # the last position a row sees: [batch, packs, PACK]
    state = None
    for first in range(0, int(start.max()) + rows, SPAN):
        partial = None
        for tile in range(first, min(first + SPAN, cache.capacity), TILE):
            partial = _tile(packed, cache, tile, limit, scale, dtype, partial)
        assert partial is not None
        state = partial if state is None else _combined(state, partial)
    assert state is not None
    _, total, summed = state
    out = (summed / total[..., None]).view(batch, heads, packs * PACK, dim)[:, :, : rows * group]
    return out.view(batch, heads, rows, group, dim).transpose(2, 3).reshape(query.shape).to(dtype)


State = tuple[torch.Tensor, torch.Tensor, torch.Tensor]  # highest logit, sum of weights, weighted values


def _tile(
    query: torch.Tensor, cache: QuantizedCache, tile: int, limit: torch.Tensor, scale: float, dtype: torch.dtype,
    before: State | None,
) -> State:  # fmt: skip
    """`before` and TILE more positions. A row that sees none of them stays as it was, to the bit."""
    here = slice(tile, tile + TILE)
    keys = _numbers(cache.keys[:, :, here], cache.format)
    values = (_numbers(cache.values[:, :, here], cache.format) * cache.value_scales[:, :, here, None]).to(dtype).float()
    logits = _product(query, keys.transpose(-1, -2)) * scale
    if cache.key_scales is not None:
        logits = logits * cache.key_scales[:, :, None, None, here]
    positions = torch.arange(tile, tile + TILE, device=query.device)
    logits = logits.masked_fill(positions > limit[:, None, ..., None], -torch.inf)
    highest = logits.amax(-1)
    if before is None:
        before = torch.full_like(highest, -torch.inf), torch.zeros_like(highest), torch.zeros_like(query)
    best = before[0].maximum(highest)
    anchor = best.masked_fill(best == -torch.inf, 0)  # nothing seen yet: every weight is exp(-inf) = 0
    kept, weight = (before[0] - anchor).exp(), (logits - anchor[..., None]).exp()
    summed = before[2] * kept[..., None] + _product(weight.to(dtype).float(), values)
    return best, before[1] * kept + weight.sum(-1), summed


def _combined(one: State, two: State) -> State:
    best = one[0].maximum(two[0])
    first, second = (one[0] - best).exp(), (two[0] - best).exp()
    return best, one[1] * first + two[1] * second, one[2] * first[..., None] + two[2] * second[..., None]


def _product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """[batch, heads, packs, PACK, k] times [batch, heads, k, n]: products of one shape, whatever the batch."""
    batch, heads, packs, pack, k = left.shape
    each = right[:, :, None].expand(-1, -1, packs, -1, -1).reshape(-1, k, right.shape[-1])
    return torch.bmm(left.reshape(-1, pack, k), each).view(batch, heads, packs, pack, -1)


def _codes(scaled: torch.Tensor, format: Format) -> torch.Tensor:
    dtype, most = FORMATS[format]
    scaled = scaled.clamp(-most, most)
    if format == "fp8":
        return scaled.to(dtype)
    codes = scaled.round()
    if format == "int8":
        return codes.to(dtype)
    low, high = (codes + 8).to(torch.uint8).chunk(2, dim=-1)
    return low | high << 4


def _numbers(codes: torch.Tensor, format: Format) -> torch.Tensor:
    """float32 [..., head_dim], before scales."""
    if format != "int4":
        return codes.float()
    return torch.cat([codes & 15, codes >> 4], dim=-1).float() - 8


def check(query: torch.Tensor, cache: QuantizedCache, start: torch.Tensor, scale: float | None) -> float:
    """The scale of the scores, 1/sqrt(head_dim) for None. ValueError for arguments that no path takes."""
    if (
        query.dim() != 4
        or (query.shape[0], query.shape[3]) != (cache.batch, cache.head_dim)
        or query.shape[1] < 1
        or query.shape[1] % cache.heads
        or query.shape[2] < 1
    ):
        raise ValueError(
            f"query: expected [{cache.batch}, a multiple of {cache.heads}, rows, {cache.head_dim}], "
            f"got {list(query.shape)}"
        )
    if query.dtype not in QUERY_DTYPES:
        raise ValueError(f"query: expected float32, bfloat16 or float16, got {query.dtype}")
    if not query.is_contiguous():
        raise ValueError(f"query: expected contiguous, got strides {query.stride()}")
    if query.device != cache.keys.device:
        raise ValueError(f"query: expected a tensor on {cache.keys.device}, got {query.device}")
    _check_start(cache, start, query.shape[2])
    return cache.head_dim**-0.5 if scale is None else float(scale)


def _check_start(cache: QuantizedCache, start: torch.Tensor, rows: int) -> None:
    if start.dtype != torch.int64 or tuple(start.shape) != (cache.batch,) or start.device != cache.keys.device:
        raise ValueError(
            f"start: expected int64 [{cache.batch}] on {cache.keys.device}, "
            f"got {start.dtype} {list(start.shape)} on {start.device}"
        )
    if not 0 <= int(start.min()) <= int(start.max()) <= cache.capacity - rows:
        raise ValueError(
            f"start: expected 0 to {cache.capacity - rows} ({cache.capacity} positions), got {start.tolist()}"
        )
