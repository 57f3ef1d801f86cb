"""Random plain decoders, texts for them in blocks, and what they compute: in float64, written from the definition."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from hypothesis import strategies as st

from qualgate_kernels import cpu
from qualgate_kernels.cpu.decode import Decode
from qualgate_kernels.cpu.int8 import prepare_int8
from qualgate_kernels.dense import PreparedDense, prepare_dense
from qualgate_kernels.dequantize import dequantize_torch
from qualgate_kernels.paged import Places, Seen, new_blocks
from qualgate_kernels.plain_decoder import DecoderLayer, Layout, PlainDecoder, Products
from qualgate_kernels.slots import SLOTS
from tests.packed_samples import weight

POSITIONS = 70
UNIT = 2.0**-24  # what rounding to float32 errs by, of the number
FORMS = ("float32", "float16", "bfloat16", "int4 g16", "int4 g16 asym", "int8", "mxfp4")
W8A8 = "w8a8"


@dataclass(frozen=True)
class Shape:
    """What a decoder is drawn by. form: of its weights; stacked: layers that read one input are one matrix."""

    width: int = 48
    kv_heads: int = 2
    group: int = 2
    dim: int = 16
    rotary: int = 16
    inner: int = 80
    layers: int = 2
    form: str = "float32"
    stacked: bool = False
    biases: bool = False
    norms: bool = False
    window: int = 0
    sinks: bool = False
    soft_cap: float = 0.0
    seed: int = 0

    @property
    def heads(self) -> int:
        """Of queries."""
        return self.kv_heads * self.group


def shapes(forms: Iterable[str]) -> st.SearchStrategy[Shape]:
    """Any, small."""
    dims = st.sampled_from([16, 32, 48, 64]).flatmap(
        lambda dim: st.tuples(st.just(dim), st.integers(0, dim // 2).map(lambda half: 2 * half))
    )
    sixteens = st.integers(1, 9).map(lambda count: 16 * count)
    return st.builds(
        lambda dims, **others: Shape(dim=dims[0], rotary=dims[1], **others),
        dims, width=sixteens, kv_heads=st.integers(1, 3), group=st.integers(1, 4), inner=sixteens,
        layers=st.integers(1, 3), form=st.sampled_from(list(forms)), stacked=st.booleans(), biases=st.booleans(),
        norms=st.booleans(), window=st.sampled_from([0, 0, 1, 5, 17]), sinks=st.booleans(),
        soft_cap=st.sampled_from([0.0, 0.0, 2.0]), seed=st.integers(0, 2**20),
    )  # fmt: skip


@dataclass(frozen=True)
class Drawn:
    """A decoder, and the numbers of its weights and biases: of each layer by name, float64 [out, in] and [out]."""

    shape: Shape
    decoder: PlainDecoder
    numbers: list[dict[str, torch.Tensor]]


def drawn(shape: Shape) -> Drawn:
    """Weights of such a size that a row's numbers keep theirs."""
    generator = torch.Generator().manual_seed(shape.seed)
    heads, kept = shape.heads * shape.dim, shape.kv_heads * shape.dim
    layers, numbers = [], []
    for _ in range(shape.layers):
        found = {
            "heads": _products(shape, generator, [heads, kept, kept], shape.width),
            "out": _products(shape, generator, [shape.width], heads),
            "gates": _products(shape, generator, [shape.inner, shape.inner], shape.width),
            "down": _products(shape, generator, [shape.width], shape.inner),
        }
        numbers.append(
            {
                name: one
                for part, (_, *both) in found.items()
                for name, one in zip((part, f"{part} bias"), both, strict=True)
            }
        )
        seen = Seen(
            scale=shape.dim**-0.5,
            soft_cap=shape.soft_cap,
            window=shape.window,
            sinks=torch.randn(shape.heads, generator=generator) if shape.sinks else None,
        )
        layer = DecoderLayer(
            **{name: products for name, (products, *_) in found.items()},
            attention_norm=_near_one(shape.width, generator), feed_norm=_near_one(shape.width, generator),
            query_norm=_near_one(shape.dim, generator) if shape.norms else None,
            key_norm=_near_one(shape.dim, generator) if shape.norms else None, seen=seen,
        )  # fmt: skip
        layers.append(layer)
    frequencies = 100.0 ** -(torch.arange(shape.rotary // 2) / max(1, shape.rotary // 2))
    angles = torch.arange(POSITIONS)[:, None] * frequencies
    decoder = PlainDecoder(
        layers=tuple(layers), heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.dim,
        norm=_near_one(shape.width, generator), eps=0.03, cosines=1.1 * angles.cos(), sines=1.1 * angles.sin(),
    )  # fmt: skip
    return Drawn(shape, decoder, numbers)


def _near_one(count: int, generator: torch.Generator) -> torch.Tensor:
    return 0.5 + torch.rand(count, generator=generator)


def _products(shape: Shape, generator: torch.Generator, rows: list[int], columns: int) -> tuple[Any, ...]:
    rows = [sum(rows)] if shape.stacked else rows
    made = [_weight(shape.form, one, columns, generator) for one in rows]
    biases = [torch.randn(one, generator=generator) / 2 if shape.biases else None for one in rows]
    products = Products(weights=tuple(layout for layout, _ in made), biases=tuple(biases))
    numbers = torch.cat([torch.zeros(one) if bias is None else bias for one, bias in zip(rows, biases, strict=True)])
    return products, torch.cat([numbers for _, numbers in made]), numbers.double()


def _weight(form: str, rows: int, columns: int, generator: torch.Generator) -> tuple[Layout, torch.Tensor]:
    if form in ("float32", "float16", "bfloat16"):
        dense = (torch.randn(rows, columns, generator=generator) / columns**0.5).to(getattr(torch, form))
        prepared = prepare_dense(dense)
        assert isinstance(prepared, PreparedDense)
        return prepared, dense.double()
    if form == "mxfp4" and columns % 32:
        form = "int4 g16"
    packed = weight("int8" if form == W8A8 else form, rows, columns, int(torch.randint(2**30, (), generator=generator)))
    steps = round(float((dequantize_torch(packed).std() * columns**0.5).log2()))  # a power of two: nothing is rounded
    scales = packed.scales - steps if packed.scales.dtype == torch.uint8 else packed.scales * 2.0**-steps
    packed = replace(packed, scales=scales)
    return prepare_int8(packed) if form == W8A8 else cpu.prepare(packed), dequantize_torch(packed).double()


class Texts:
    """Sequences of random embeddings, and blocks of every layer for them, in any order. kept: their format."""

    def __init__(self, made: Drawn, lengths: list[int], seed: int = 0, kept: str = "float32") -> None:
        self.made, generator = made, torch.Generator().manual_seed(seed)
        width = -(-max(lengths) // SLOTS)
        blocks = torch.randperm(width * len(lengths) + 3, generator=generator).int()
        self.table = blocks[: width * len(lengths)].view(len(lengths), width).contiguous()
        self.x = [torch.randn(length, made.shape.width, generator=generator) for length in lengths]
        shape = made.decoder.kv_heads, made.decoder.head_dim
        self.blocks = [new_blocks(len(blocks), *shape, form=kept) for _ in made.decoder.layers]

    @cached_property
    def decode(self) -> Decode:
        """The decoder bound to the blocks."""
        return Decode(self.made.decoder, self.blocks)

    @property
    def rows(self) -> list[tuple[int, int]]:
        """(sequence, position) of every row there is."""
        return [(number, at) for number, x in enumerate(self.x) for at in range(len(x))]

    def places(self, rows: list[tuple[int, int]]) -> Places:
        """Where they stand."""
        sequence, position = (torch.tensor(column, dtype=torch.int32) for column in zip(*rows, strict=True))
        return Places(table=self.table, sequence=sequence, position=position)

    def embedded(self, rows: list[tuple[int, int]]) -> torch.Tensor:
        """float32 [rows, width]."""
        return torch.stack([self.x[number][at] for number, at in rows])

    def passed(self, rows: list[tuple[int, int]], wanted: list[int] | None = None, **how: Any) -> torch.Tensor:
        """One pass in C. wanted: indices into `rows`, None for all; how: threads, path, limit, beyond."""
        chosen, places = (
            torch.tensor(range(len(rows)) if wanted is None else wanted, dtype=torch.int64),
            self.places(rows),
        )
        return self.decode(self.embedded(rows), places, places.slots, chosen, how.pop("threads", 1), **how)

    def whole(self, **how: Any) -> list[torch.Tensor]:
        """Each sequence by itself, all its rows in one pass."""
        return [self.passed([(number, at) for at in range(len(x))], **how) for number, x in enumerate(self.x)]


Rough = Callable[[torch.Tensor, torch.Tensor, float], torch.Tensor]
"""(exact value, what its roundings are relative to, how many there may be) → a value as it may come out."""


def exact(value: torch.Tensor, size: torch.Tensor, steps: float) -> torch.Tensor:
    """No rounding at all."""
    del size, steps
    return value


def rough(seed: int) -> Rough:
    """Errs at random: n roundings that do not know of each other, by the root of n (Higham and Mary, 2019)."""
    generator = torch.Generator().manual_seed(seed)

    def by_chance(value: torch.Tensor, size: torch.Tensor, steps: float) -> torch.Tensor:
        drawn = 2 * torch.rand(value.shape, generator=generator, dtype=torch.float64) - 1
        return value + drawn * steps**0.5 * UNIT * size.abs()

    return by_chance


def computed(made: Drawn, x: torch.Tensor, rounded: Rough = exact) -> torch.Tensor:
    """float64 states [rows, width] of one sequence, read whole from its first position. Not for W8A8."""
    decoder, rows, x = made.decoder, len(x), x.double()
    for layer, numbers in zip(decoder.layers, made.numbers, strict=True):

        def times(name: str, x: torch.Tensor, numbers: dict[str, torch.Tensor] = numbers) -> torch.Tensor:
            weight, bias = numbers[name], numbers[f"{name} bias"]
            size = x.abs() @ weight.abs().T + bias.abs()
            return rounded(x @ weight.T + bias, size, weight.shape[1] + 8)

        def added(x: torch.Tensor, more: torch.Tensor) -> torch.Tensor:
            return rounded(x + more, x.abs() + more.abs(), 1)

        heads = times("heads", _normed(x, layer.attention_norm, decoder.eps, rounded)).view(rows, -1, decoder.head_dim)
        query, key, value = heads.split([decoder.heads, decoder.kv_heads, decoder.kv_heads], 1)
        if layer.query_norm is not None and layer.key_norm is not None:
            query = _normed(query, layer.query_norm, decoder.eps, rounded)
            key = _normed(key, layer.key_norm, decoder.eps, rounded)
        query, key = (_turned(one, decoder, rounded) for one in (query, key))
        x = added(x, times("out", _attended(query, key, value, layer.seen, rounded)))
        gate, up = times("gates", _normed(x, layer.feed_norm, decoder.eps, rounded)).chunk(2, -1)
        product = gate / (1 + (-gate).exp()) * up
        x = added(x, times("down", rounded(product, product, 8)))
    return _normed(x, decoder.norm, decoder.eps, rounded)


def _normed(x: torch.Tensor, weight: torch.Tensor, eps: float, rounded: Rough) -> torch.Tensor:
    y = x / (x.square().mean(-1, keepdim=True) + eps).sqrt() * weight.double()
    return rounded(y, y, x.shape[-1] / 2 + 8)  # the sum's roundings count half: a root is drawn


def _turned(heads: torch.Tensor, decoder: PlainDecoder, rounded: Rough) -> torch.Tensor:
    half = decoder.cosines.shape[1]
    angle = torch.complex(decoder.cosines[: len(heads)].double(), decoder.sines[: len(heads)].double())[:, None]
    pairs = torch.complex(heads[..., :half], heads[..., half : 2 * half]) * angle
    size = heads[..., :half].abs() + heads[..., half : 2 * half].abs()
    turned = [rounded(part, 1.2 * size, 3) for part in (pairs.real, pairs.imag)]
    return torch.cat([*turned, heads[..., 2 * half :]], -1)


def _attended(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, seen: Seen, rounded: Rough) -> torch.Tensor:
    group, rows = query.shape[1] // key.shape[1], len(query)
    key, value = (one.repeat_interleave(group, 1) for one in (key, value))
    logits, sizes = (
        torch.einsum("qhd,khd->hqk", *pair) * seen.scale for pair in ((query, key), (query.abs(), key.abs()))
    )
    logits = rounded(logits, sizes, query.shape[-1] + 2)
    if seen.soft_cap:
        logits = seen.soft_cap * torch.tanh(logits / seen.soft_cap)
        logits = rounded(logits, seen.soft_cap + logits.abs(), 8)
    behind = torch.arange(rows)[:, None] - torch.arange(rows)
    hidden = (behind < 0) | (behind >= (seen.window or rows))
    weights = logits.masked_fill(hidden, -torch.inf).exp()
    total = weights.sum(-1, keepdim=True)
    if seen.sinks is not None:
        total = total + seen.sinks.double().exp()[:, None, None]
    out, size = (torch.einsum("hqk,khd->qhd", weights / total, one) for one in (value, value.abs()))
    return rounded(out, size, 2 * rows + 64).flatten(
        1
    )  # exponentials of arguments of up to 30, rounded, are among them


def allowed(made: Drawn, x: torch.Tensor, states: torch.Tensor) -> float:
    """How far float32 may be from float64 `states`: as far as the farthest of three ways to round at random."""
    return max(float((computed(made, x, rough(seed)) - states).abs().max()) for seed in range(3))
