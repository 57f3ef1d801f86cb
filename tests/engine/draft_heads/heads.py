"""Heads of tiny models, trained in a second or made of random numbers."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from safetensors.torch import save_file
from torch.nn import functional

from qualgate.engine.draft_heads.eagle3 import eagle3_tensors
from qualgate.engine.draft_heads.folder import HeadShape, HeadTarget, Layout
from qualgate.engine.draft_heads.layer import head_tensors
from qualgate.engine.draft_heads.loading import save_head
from qualgate.engine.draft_heads.published import WEIGHTS
from qualgate.engine.load import LoadedArm
from qualgate.engine.request import Request
from qualgate.records import Case
from tests.engine.engines import answered


def cases(count: int = 24, *, most: int = 24) -> list[Case]:
    """Prompts of bytes, of many lengths, some of which begin alike."""
    draw = random.Random(1)
    words = ["alpha", "beta", "gamma", "delta", "the quick brown fox jumps over the lazy dog"]
    return [
        Case(
            evalset="set",
            body={
                "id": f"case-{at}",
                "prompt": " ".join(draw.choices(words, k=draw.choice([1, 3, 8]))) + str(at),
                "max_new_tokens": draw.choice([4, most // 2, most]),
                "task": draw.choice(["one", "two"]),
            },
        )
        for at in range(count)
    ]


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


def of(arm: LoadedArm) -> HeadTarget:
    """Whose head it is to be."""
    return HeadTarget(weights=arm.identity.weights, tokenizer=arm.identity.tokenizer, name=arm.spec.target_name)


def states_of(engine: Any, text: Sequence[int]) -> torch.Tensor:
    """What entered the target's head at each token of a text but the last that it says."""
    found = list[torch.Tensor]()
    engine.reader = SimpleNamespace(read=lambda row, prompt, first, states: found.append(states.clone()))
    answered(engine, [Request(prompt=tuple(text), max_new_tokens=1)])
    engine.reader = None
    return torch.cat(found)


def save_random_head(
    folder: Path,
    arm: LoadedArm,
    *,
    layout: Layout = "eagle",
    seed: int = 0,
    tokens: int = 4,
    trained: Any = None,
    **changed: Any,
) -> Path:
    """A head that learned nothing, of an arm of a tiny model. trained: what its folder says of that all the same."""
    shape = tiny_shape(**changed)
    tensors = random_tensors(head_tensors(layout, tokens, shape), seed)
    save_head(folder, layout, tokens, shape, tensors, of(arm), trained or {})
    return folder


def save_eagle3(folder: Path, *, seed: int = 0, drafted: int = 130) -> Path:
    """A head of random numbers in the layout that EAGLE-3's authors publish, for a tiny model of six layers."""
    shape = tiny_shape()
    tensors = random_tensors(eagle3_tensors(shape, drafted), seed)
    layer = ("hidden_norm", "input_layernorm", "self_attn", "post_attention_layernorm", "mlp")
    named = {f"midlayer.{name}" if name.startswith(layer) else name: one for name, one in tensors.items()}
    ids = torch.arange(0, 2 * drafted, 2)
    named["d2t"] = ids - torch.arange(drafted)
    named["t2d"] = torch.isin(torch.arange(shape.vocabulary), ids)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(named, folder / WEIGHTS)
    config = {
        "architectures": ["LlamaForCausalLMEagle3"], "model_type": "llama", "hidden_size": 64, "vocab_size": 260,
        "draft_vocab_size": drafted, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 128,
        "num_hidden_layers": 1, "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "max_position_embeddings": 512,
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
