"""The layer of a published EAGLE-3 head (2503.01840, section 3.1, and the released `cnets.py`).

Residual streams after some of the target's layers, usually three, become one state by `fc`. Attention reads that state
beside the token's embedding, each through its own norm; the output goes on unnormed, and through a last norm and an
output head over fewer tokens, which `d2t` maps to the target's. The options in `Eagle3Form` follow `speculators` 0.9.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.nn import functional

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import Batch
from qualgate.engine.dense import head_of
from qualgate.engine.draft_heads.folder import HeadShape
from qualgate.engine.draft_heads.published import Eagle3Form
from qualgate_kernels.cpu import paged
from qualgate_kernels.paged import Seen

NEVER = -1e30  # the logit of a token that the head has not
PLAIN = Eagle3Form()

Tensors = Mapping[str, torch.Tensor]


def eagle3_tensors(shape: HeadShape, drafted: int, form: Eagle3Form = PLAIN) -> dict[str, tuple[int, ...]]:
    """Return the expected names, without "midlayer.", and shapes. drafted: size of the head's own output head."""
    width, inner, taps = shape.width, shape.inner, form.taps
    query_width, kv_width = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    return {
        **({"input_norm.weight": (taps * width,)} if form.norm_before_fc else {}),
        **({f"fc_norm.{tap}.weight": (width,) for tap in range(taps)} if form.fc_norm else {}),
        **({f"self_attn.{name}_norm.weight": (shape.head_dim,) for name in "qk"} if form.head_norms else {}),
        "fc.weight": (width, taps * width),
        "hidden_norm.weight": (width,),
        "input_layernorm.weight": (width,),
        "self_attn.q_proj.weight": (query_width, 2 * width),
        "self_attn.k_proj.weight": (kv_width, 2 * width),
        "self_attn.v_proj.weight": (kv_width, 2 * width),
        "self_attn.o_proj.weight": (width, query_width),
        "post_attention_layernorm.weight": (width,),
        "mlp.gate_proj.weight": (inner, width),
        "mlp.up_proj.weight": (inner, width),
        "mlp.down_proj.weight": (width, inner),
        "norm.weight": (width,),
        "lm_head.weight": (drafted, width),
    }


class Eagle3Layer:
    """An EAGLE-3 layer on our kernels for products and attention: batching does not change a row's bits."""

    def __init__(
        self, tensors: Tensors, shape: HeadShape, turned: Callable[[torch.Tensor], Any], form: Eagle3Form = PLAIN
    ) -> None:
        """turned: int64 [rows] positions → their cosines and sines, float32 [rows, head_dim]."""
        self.shape, self._angles, self._form = shape, turned, form
        self._norms = {name: tensor.float() for name, tensor in tensors.items() if tensor.dim() == 1 and name != "d2t"}
        self._fc = _linear(tensors, "fc")
        self._heads = _linear(tensors, "self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
        self._out, self._down = _linear(tensors, "self_attn.o_proj"), _linear(tensors, "mlp.down_proj")
        self._gates = _linear(tensors, "mlp.gate_proj", "mlp.up_proj")
        self._seen = Seen(scale=shape.head_dim**-0.5, soft_cap=0.0, window=form.window, sinks=None)

    def entered(self, states: torch.Tensor) -> torch.Tensor:
        """Combine the target's tapped states, float32 [rows, taps * width], into [rows, width]."""
        if self._form.norm_before_fc:
            states = self._normed(states, "input_norm")
        if self._form.fc_norm:
            parts = states.chunk(self._form.taps, -1)
            states = torch.cat([self._normed(part, f"fc_norm.{tap}") for tap, part in enumerate(parts)], -1)
        return self._fc(states)

    def joined(self, embedded: torch.Tensor, states: torch.Tensor) -> torch.Tensor:
        """Return the layer's input from embeddings and states, float32 [rows, width] each: side by side."""
        return torch.cat([embedded, states], -1)

    def forward(self, x: torch.Tensor, batch: Batch, states: KeysValues, threads: int) -> torch.Tensor:
        """Return float32 [wanted, width] for x [rows, 2 width]; all rows' keys and values are kept."""
        shape, form = self.shape, self._form
        embedded, before = x.split(shape.width, -1)
        entering = self._normed(before, "hidden_norm")
        residual = entering if form.norm_before_residual else before
        layer_input = torch.cat([self._normed(embedded, "input_layernorm"), entering], -1)
        heads = self._heads(layer_input).view(len(x), -1, shape.head_dim)
        query, key, value = heads.split([shape.heads, shape.kv_heads, shape.kv_heads], 1)
        if form.head_norms:
            query, key = self._normed(query, "self_attn.q_norm"), self._normed(key, "self_attn.k_norm")
        cosine, sine = (table[:, None] for table in self._angles(batch.positions))
        blocks = states.of(0, batch.blocks, shape.kv_heads, shape.head_dim)
        paged.keep(blocks, batch.slots, _turned(key, cosine, sine), value.contiguous(), threads)
        attended = paged.attend(_turned(query, cosine, sine), blocks, batch.places, self._seen, threads)
        y = residual + self._out(attended.flatten(1))
        gate, up = self._gates(self._normed(y, "post_attention_layernorm")).chunk(2, -1)
        y = (y + self._down(functional.silu(gate) * up))[batch.wanted]
        return self._normed(y, "norm") if form.norm_output else y

    def _normed(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return normed(x, self._norms[f"{name}.weight"], self.shape.eps)


class Eagle3Head:
    """An output head over the drafted tokens, with logits over the target's vocabulary."""

    def __init__(self, tensors: Tensors, shape: HeadShape, form: Eagle3Form = PLAIN) -> None:
        """tensors: may hold "d2t", int64 [drafted], the offset from a drafted id to the target's."""
        self.vocabulary, self._eps = shape.vocabulary, shape.eps
        self._norm = None if form.norm_output else tensors["norm.weight"].float()
        self._head = _linear(tensors, "lm_head")
        shift = tensors.get("d2t")
        self._ids = None if shift is None else torch.arange(len(shift)) + shift

    def logits(self, states: torch.Tensor) -> torch.Tensor:
        """Return float32 [rows, vocabulary]; `NEVER` for tokens that the head lacks."""
        logits = self._head(states if self._norm is None else normed(states, self._norm, self._eps))
        if self._ids is None:
            return logits
        return logits.new_full((len(logits), self.vocabulary), NEVER).index_copy_(1, self._ids, logits)


def normed(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    """Return the RMS norm of x as in Llama, in float32."""
    return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + eps) * weight


def _turned(heads: torch.Tensor, cosine: torch.Tensor, sine: torch.Tensor) -> torch.Tensor:
    """Rotate the two halves of each head by the given angles."""
    left, right = heads.chunk(2, -1)
    return (heads * cosine + torch.cat([-right, left], -1) * sine).contiguous()


def _linear(tensors: Tensors, *names: str) -> torch.nn.Module:
    return head_of({"weight": torch.cat([tensors[f"{name}.weight"].float() for name in names])})
