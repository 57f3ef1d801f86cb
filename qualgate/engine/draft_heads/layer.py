"""The layer of a draft head: one decoder layer that reads an embedding beside a state, and passes through C.

x = W [embedding of a token ; state before it]; then a layer as Llama has it, and a norm. What comes out stands for the
state that the target would have had at that token, so its output head reads it, and so does the next row (EAGLE,
2401.15077, figure 6; the norms are Llama's own).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import Batch
from qualgate.engine.dense import head_of
from qualgate.engine.draft_heads.folder import HeadShape, Layout
from qualgate.errors import UsageError
from qualgate_kernels.cpu.decode import Decode, unfit
from qualgate_kernels.dense import PreparedDense, prepare_dense
from qualgate_kernels.paged import Seen
from qualgate_kernels.plain_decoder import DecoderLayer, PlainDecoder, Products

POSITIONS = 1024  # whose angles are made at a time


def head_tensors(layout: Layout, tokens: int, shape: HeadShape) -> dict[str, tuple[int, ...]]:
    """Names and shapes of all tensors of a head. "medusa": a block for each place of a draft; "parallel": beside the
    layer what it reads at the places behind the first."""
    if layout == "medusa":
        sizes = {"weight": (shape.width, shape.width), "bias": (shape.width,)}
        return {f"blocks.{place}.{name}": size for place in range(tokens) for name, size in sizes.items()}
    masks = {"masks": (tokens - 1, shape.width)} if layout == "parallel" else {}
    return {**layer_tensors(shape), **masks}


def layer_tensors(shape: HeadShape) -> dict[str, tuple[int, ...]]:
    """Names and shapes of a layer's tensors; linear weights are [out_features, in_features]."""
    width, inner = shape.width, shape.inner
    heads, kept = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        "fc.weight": (width, 2 * width),
        "self_attn.q_proj.weight": (heads, width),
        "self_attn.k_proj.weight": (kept, width),
        "self_attn.v_proj.weight": (kept, width),
        "self_attn.o_proj.weight": (width, heads),
        "mlp.gate_proj.weight": (inner, width),
        "mlp.up_proj.weight": (inner, width),
        "mlp.down_proj.weight": (width, inner),
        "input_layernorm.weight": (width,),
        "post_attention_layernorm.weight": (width,),
        "norm.weight": (width,),
    }


AGAIN = "Train this head again, or fetch it again."


def check_tensors(
    tensors: Mapping[str, torch.Tensor], wanted: Mapping[str, tuple[int, ...]], where: str, again: str = AGAIN
) -> None:
    """UsageError naming the first tensor that is missing, too many, of another shape or holds what is no number."""
    for name in sorted(wanted.keys() | tensors.keys()):
        found = tensors.get(name)
        if found is None or name not in wanted or tuple(found.shape) != wanted[name]:
            there = "is missing" if found is None else f"holds {' x '.join(map(str, found.shape))} numbers"
            expected = " x ".join(map(str, wanted[name])) if name in wanted else "no such tensor"
            raise UsageError(f"{where}: {name} {there}, expected {expected}. {again}")
        if not found.isfinite().all():
            raise UsageError(f"{where}: {name} holds NaN or infinities. {again}")


class HeadLayer:
    """A head's layer, laid out for the kernels. masks: float32 [places, width], what it reads behind a text in the
    place of its own outputs, so that one pass makes all of a draft (as PARD does, 2504.18583); None: its outputs."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], shape: HeadShape) -> None:
        """tensors: as `layer_tensors` names them. UsageError for sizes that the kernels do not take."""
        self.shape, numbers = shape, {name: tensor.float() for name, tensor in tensors.items()}
        self.masks = numbers.get("masks")
        self._fc = head_of({"weight": numbers["fc.weight"]})
        layer = DecoderLayer(
            heads=_product(numbers, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
            out=_product(numbers, "self_attn.o_proj"),
            gates=_product(numbers, "mlp.gate_proj", "mlp.up_proj"),
            down=_product(numbers, "mlp.down_proj"),
            attention_norm=numbers["input_layernorm.weight"].contiguous(),
            feed_norm=numbers["post_attention_layernorm.weight"].contiguous(),
            query_norm=None,
            key_norm=None,
            seen=Seen(scale=shape.head_dim**-0.5, soft_cap=0.0, window=0, sinks=None),
        )
        cosines, sines = angles(shape, POSITIONS)
        self._plain = PlainDecoder(
            layers=(layer,), heads=shape.heads, kv_heads=shape.kv_heads, head_dim=shape.head_dim,
            norm=numbers["norm.weight"].contiguous(), eps=shape.eps, cosines=cosines, sines=sines,
        )  # fmt: skip
        if reason := unfit(self._plain):
            raise UsageError(f"a draft head that the kernels do not take: {reason}. Train it again on this machine.")
        self._bound: tuple[KeysValues, Decode] | None = None

    def entered(self, states: torch.Tensor) -> torch.Tensor:
        """What is read of the target's states: they are it."""
        return states

    def joined(self, embedded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """What the layer reads of embeddings and states, float32 [rows, width] each."""
        return self._fc(torch.cat([embedded, states], -1))

    def forward(self, x: torch.Tensor, batch: Batch, states: KeysValues, threads: int) -> torch.Tensor:
        """float32 [wanted, width] of x [rows, width], which is written over; all rows' keys and values are kept."""
        longest = int(batch.places.position.max())
        if longest >= len(self._plain.cosines):
            cosines, sines = angles(self.shape, (longest // POSITIONS + 1) * POSITIONS)
            self._plain, self._bound = replace(self._plain, cosines=cosines, sines=sines), None
        if self._bound is None or self._bound[0] is not states or self._bound[1].blocks[0].count != batch.blocks:
            blocks = [states.of(0, batch.blocks, self.shape.kv_heads, self.shape.head_dim)]
            self._bound = states, Decode(self._plain, blocks)
        return self._bound[1](x.contiguous(), batch.places, batch.slots, batch.wanted, threads)


def angles(shape: HeadShape, positions: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Cosines and sines, float32 [positions, head_dim / 2] (2104.09864, equation 34)."""
    half = torch.arange(0, shape.head_dim, 2, dtype=torch.float64) / shape.head_dim
    turned = torch.outer(torch.arange(positions, dtype=torch.float64), shape.theta**-half)
    return turned.cos().float(), turned.sin().float()


def _product(numbers: Mapping[str, torch.Tensor], *names: str) -> Products:
    weight = prepare_dense(torch.cat([numbers[f"{name}.weight"] for name in names]))
    if not isinstance(weight, PreparedDense):
        raise UsageError(f"a draft head that the kernels do not take: {weight}.")
    return Products(weights=(weight,), biases=(None,))
