"""A plain decoder as one kernel: norm, attention with rotated heads, norm, gated feed-forward, layer after layer.

Llama, Mistral, Qwen2, Qwen3 and Phi-3 are plain decoders. The records say what one is; `decode_torch` is what a pass
over packed rows computes, cpu/decode.py the kernel in C, which a pass leaves only when it is done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from qualgate_kernels.activations import rounded_torch
from qualgate_kernels.cpu.dense_layout import PreparedDense, restore_dense
from qualgate_kernels.cpu.int8 import PreparedInt8
from qualgate_kernels.cpu.layout import Prepared, restore
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.paged import Blocks, Places, Seen, attend_torch, keep_torch

Layout = Prepared | PreparedDense | PreparedInt8


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Products:
    """Layers that read one input, their outputs beside each other.

    weights: up to three, laid out for the kernels; biases: float32 [out_features] of each, or None
    """

    weights: tuple[Layout, ...]
    biases: tuple[torch.Tensor | None, ...]

    @property
    def columns(self) -> int:
        """Outputs of all."""
        return sum(weight.shape[0] for weight in self.weights)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class DecoderLayer:
    """heads: queries, keys, values; out; gates: gate, up; down. Norms: float32 [width], of queries and keys [head_dim]
    or None. seen: how its attention weighs what a row sees."""

    heads: Products
    out: Products
    gates: Products
    down: Products
    attention_norm: torch.Tensor
    feed_norm: torch.Tensor
    query_norm: torch.Tensor | None
    key_norm: torch.Tensor | None
    seen: Seen


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PlainDecoder:
    """kv_heads and head_dim: of each layer; norm: of the last one's output; eps: what every norm adds to the mean of
    squares; cosines, sines: float32 [positions, rotary / 2], of the angles by which heads are turned."""

    layers: tuple[DecoderLayer, ...]
    heads: int
    kv_heads: int
    head_dim: int
    norm: torch.Tensor
    eps: float
    cosines: torch.Tensor
    sines: torch.Tensor

    @property
    def width(self) -> int:
        """Numbers of a row."""
        return self.norm.shape[0]

    @property
    def inner(self) -> int:
        """Numbers between the two products of a feed-forward."""
        return self.layers[0].gates.columns // 2


def decode_torch(
    decoder: PlainDecoder,
    x: torch.Tensor,
    places: Places,
    blocks: Sequence[Blocks],
    wanted: torch.Tensor,
    stored: str = "float32",
) -> torch.Tensor:
    """Return what enters the output head at rows `wanted`, float32 [wanted, width]: the torch twin.

    x: float32 [rows, width], the rows' embeddings; blocks: of each layer, where the rows' keys and values are kept;
    stored: the dtype to which a server rounds what it stores: what a product with its bias gives, a norm before its
    weights and with them, turned heads, an attention, a gate before its product and with it, and each sum of the
    residual stream. Between these, and in sums, numbers are float32.
    """
    dtype = getattr(torch, stored)

    def rounded(numbers: torch.Tensor) -> torch.Tensor:
        return numbers.to(dtype).float()

    def normed(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        return rounded(rounded(x * torch.rsqrt(x.square().mean(-1, keepdim=True) + decoder.eps)) * weight)

    rows, dim = len(x), decoder.head_dim
    cosine, sine = (table[places.position.long()][:, None] for table in (decoder.cosines, decoder.sines))
    split = [decoder.heads, decoder.kv_heads, decoder.kv_heads]
    for layer, cache in zip(decoder.layers, blocks, strict=True):
        heads = rounded(_times(normed(x, layer.attention_norm), layer.heads)).view(rows, -1, dim)
        query, key, value = heads.split(split, 1)
        query, key = (
            rounded(_turned(part if norm is None else normed(part, norm), cosine, sine))
            for part, norm in ((query, layer.query_norm), (key, layer.key_norm))
        )
        keep_torch(cache, places, key, value)
        attended = rounded(attend_torch(query.contiguous(), cache, places, layer.seen)).flatten(1)
        x = rounded(x + rounded(_times(attended, layer.out)))
        gate, up = rounded(_times(normed(x, layer.feed_norm), layer.gates)).chunk(2, -1)
        x = rounded(x + rounded(_times(rounded(rounded(torch.nn.functional.silu(gate)) * up), layer.down)))
    return normed(x[wanted], decoder.norm)


def _turned(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    first_half, second_half, unrotated = heads.split(
        [cosine.shape[-1], cosine.shape[-1], heads.shape[-1] - 2 * cosine.shape[-1]], -1
    )
    return torch.cat(
        [first_half * cosine - second_half * sine, second_half * cosine + first_half * sine, unrotated], -1
    )


def _times(x: torch.Tensor, products: Products) -> torch.Tensor:
    return torch.cat([_product(x, *pair) for pair in zip(products.weights, products.biases, strict=True)], -1)


def _product(x: torch.Tensor, weight: Layout, bias: torch.Tensor | None) -> torch.Tensor:
    if isinstance(weight, PreparedInt8):
        rows, columns = weight.shape
        codes = weight.codes.transpose(1, 2).flatten(2).flatten(0, 1)[:rows, :columns]
        return torch.nn.functional.linear(rounded_torch(x, "int8"), codes * weight.scales[:rows, None], bias)
    numbers = restore_dense(weight).float() if isinstance(weight, PreparedDense) else dequantize_torch(restore(weight))
    return torch.nn.functional.linear(x, numbers, bias)
