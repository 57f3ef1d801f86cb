"""EAGLE-3 heads of tiny models, made of random numbers."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch.nn import functional

from qualgate.engine.draft_heads.eagle3 import eagle3_tensors
from qualgate.engine.draft_heads.folder import HeadShape
from qualgate.engine.draft_heads.published import TAPS, WEIGHTS, Eagle3Form
from qualgate.engine.request import Request
from tests.engine.engines import answered


def tiny_shape(**changed: Any) -> HeadShape:
    """Of the head of a tiny model."""
    sizes = {"width": 64, "vocabulary": 260, "heads": 4, "kv_heads": 2, "head_dim": 16, "inner": 128}
    return HeadShape(**{**sizes, **changed})


def random_tensors(shapes: Mapping[str, Sequence[int]], seed: int = 0) -> dict[str, torch.Tensor]:
    """Norms near 1, weights small."""
    generator = torch.Generator().manual_seed(seed)
    return {
        name: (
            1 + 0.1 * torch.randn(*size, generator=generator)
            if "norm" in name
            else 0.1 * torch.randn(*size, generator=generator)
        ).bfloat16()
        for name, size in shapes.items()
    }


def states_of(engine: Any, text: Sequence[int]) -> torch.Tensor:
    """What entered the target's head at each token of a text but the last that it says."""
    found = list[torch.Tensor]()
    engine.reader = SimpleNamespace(read=lambda row, prompt, first, states: found.append(states.clone()))
    answered(engine, [Request(prompt=tuple(text), max_new_tokens=1)])
    engine.reader = None
    return torch.cat(found)


def save_eagle3(
    folder: Path, *, seed: int = 0, drafted: int = 130, reads: Sequence[int] = (), shape: HeadShape | None = None
) -> Path:
    """A head of random numbers in the layout that EAGLE-3's authors publish, for a tiny model of six layers, or of more
    than it reads."""
    shape = shape or tiny_shape()
    tensors = random_tensors(eagle3_tensors(shape, drafted, Eagle3Form(taps=len(reads) or 3)), seed)
    layer = ("hidden_norm", "input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
    named = {f"midlayer.{name}" if name.startswith(layer) else name: one for name, one in tensors.items()}
    ids = torch.arange(0, 2 * drafted, 2)
    named["d2t"] = ids - torch.arange(drafted)
    named["t2d"] = torch.isin(torch.arange(shape.vocabulary), ids)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(named, folder / WEIGHTS)
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": shape.width,
        "vocab_size": shape.vocabulary, "draft_vocab_size": drafted, "head_dim": shape.head_dim,
        "num_attention_heads": shape.heads, "num_key_value_heads": shape.kv_heads, "intermediate_size": shape.inner,
        "num_hidden_layers": 1, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 512,
        **({TAPS: [*reads]} if reads else {}),
    }  # fmt: skip
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def eagle3_by_hand(
    tensors: Mapping[str, torch.Tensor], shape: HeadShape, embedded: torch.Tensor, h: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The layer over a whole text in plain torch, as the authors' code has it: [rows, width], not normed; and its own
    logits. h: what is read of the target's states, [rows, width]."""

    def norm(x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + shape.eps) * tensors[f"{name}.weight"].float()

    def times(x: torch.Tensor, name: str) -> torch.Tensor:
        return functional.linear(x, tensors[f"{name}.weight"].float())

    def turned(x: torch.Tensor) -> torch.Tensor:
        half = torch.arange(0, shape.head_dim, 2) / shape.head_dim
        angle = torch.outer(torch.arange(len(x)), shape.theta**-half)
        cosine, sine = (torch.cat([one, one], -1)[:, None] for one in (angle.cos(), angle.sin()))
        left, right = x.chunk(2, -1)
        return x * cosine + torch.cat([-right, left], -1) * sine

    both = torch.cat([norm(embedded, "input_layernorm"), norm(h, "hidden_norm")], -1)
    query, key, value = (
        times(both, f"self_attn.{name}_proj").view(len(h), -1, shape.head_dim) for name in ("q", "k", "v")
    )
    query, key = turned(query), turned(key)
    key, value = (one.repeat_interleave(shape.heads // shape.kv_heads, 1) for one in (key, value))
    logits = torch.einsum("ahd,bhd->hab", query, key) * shape.head_dim**-0.5
    logits = logits.masked_fill(torch.ones(len(h), len(h)).triu(1).bool(), -torch.inf)
    y = h + times(torch.einsum("hab,bhd->ahd", logits.softmax(-1), value).flatten(1), "self_attn.o_proj")
    normed = norm(y, "post_attention_layernorm")
    y = y + times(functional.silu(times(normed, "mlp.gate_proj")) * times(normed, "mlp.up_proj"), "mlp.down_proj")
    return y, times(norm(y, "norm"), "lm_head")
