"""Tiny models with a layer of their own for further tokens, and what it drafts, by transformers' modules alone."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch.nn import functional
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

from tests.tiny_models import END, PAD, START, VOCABULARY, save_byte_tokenizer

LAYERS = 2  # of the model itself
WEIGHTS = "model.safetensors"
Names = tuple[str, str, str, str, str, str]
# What stands before a tensor, before the decoder layer's too; the norms of embedding and state, W, the last norm.
NAMES: dict[str, Names] = {
    "DeepSeek-V3": (f"model.layers.{LAYERS}.", "", "enorm", "hnorm", "eh_proj", "shared_head.norm"),
    "Qwen3-Next": ("mtp.", "layers.0.", "pre_fc_norm_embedding", "pre_fc_norm_hidden", "fc", "norm"),
    "MiMo": ("model.mtp_layers.0.", "", "token_layernorm", "hidden_layernorm", "input_proj", "final_layernorm"),
}
# glm4_moe: as many experts as torch takes sigmoids at a time (GLM-4.5 has 160): of fewer, bits depend on a row's place.
KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "llama": ("llama", "DeepSeek-V3", {}),
    "qwen3": ("qwen3", "Qwen3-Next", {"head_dim": 16}),
    "qwen2": ("qwen2", "MiMo", {}),
    "glm4_moe": (
        "glm4_moe", "DeepSeek-V3",
        {"head_dim": 16, "n_routed_experts": 32, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
         "first_k_dense_replace": 1, "n_shared_experts": 1, "use_qk_norm": True},
    ),
    "qwen3_moe": (
        "qwen3_moe", "Qwen3-Next",
        {"head_dim": 16, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32,
         "norm_topk_prob": True},
    ),
}  # fmt: skip


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelAhead:
    """folder: as it is published; whole: all of its layers as one model's, eager; outer: what stands around the last of
    them, by the names of DeepSeek-V3; embedding, head: the layer's own, or its model's."""

    folder: Path
    whole: Any
    outer: dict[str, torch.Tensor]
    embedding: torch.Tensor
    head: torch.Tensor
    names: Names = field(repr=False)
    state_first: bool = False

    def states(self, text: Sequence[int]) -> torch.Tensor:
        """What enters the model's own head, [tokens, width]."""
        whole = self.whole.model
        x = whole.embed_tokens(torch.tensor([text]))
        for layer in whole.layers[:LAYERS]:
            x = self._through(layer, x)
        return whole.norm(x)[0]

    def draft(self, text: Sequence[int], count: int) -> list[int]:
        """So many tokens behind a text, each by all of it anew."""
        found = list[int]()
        for _ in range(count):
            found.append(int(self.logits(text, found)[-1].argmax()))
        return found

    def logits(self, text: Sequence[int], drafted: Sequence[int]) -> torch.Tensor:
        """float32 [drafted + 1, vocabulary], behind a text and each beginning of what was drafted behind it."""
        states, tokens, found = self.states(text)[:-1], [*text], list[torch.Tensor]()
        for token in (*drafted, 0):
            embedded = self._normed(functional.embedding(torch.tensor(tokens[1:]), self.embedding), "enorm")
            before = self._normed(states, "hnorm")
            pair = [before, embedded] if self.state_first else [embedded, before]
            x = functional.linear(torch.cat(pair, -1), self.outer["eh_proj"])
            out = self._normed(self._through(self.whole.model.layers[LAYERS], x[None])[0], "last")
            found.append(functional.linear(out[-1], self.head))
            states = torch.cat([states, out[-1:]])
            tokens.append(token)
        return torch.stack(found)

    def _normed(self, x: torch.Tensor, name: str) -> torch.Tensor:
        return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-6) * self.outer[name]

    def _through(self, layer: Any, x: torch.Tensor) -> torch.Tensor:
        count = x.shape[1]
        positions = torch.arange(count)[None]
        out = layer(
            x,
            attention_mask=torch.full((count, count), -torch.inf).triu(1)[None, None],
            position_ids=positions,
            position_embeddings=self.whole.model.rotary_emb(x, positions),
        )
        return out[0] if isinstance(out, tuple) else out


def save_model_ahead(folder: Path, kind: str = "llama", *, copies: str = "", seed: int = 0, **said: Any) -> ModelAhead:
    """Write a model of LAYERS layers and one ahead. copies: "its model's" or "others" of embedding and head are stored
    with the layer, "": none. said: what else the config says."""
    arch, layout, more = KINDS[kind]
    config = AutoConfig.for_model(
        arch, vocab_size=VOCABULARY, hidden_size=64, intermediate_size=96, num_hidden_layers=LAYERS + 1,
        num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512, initializer_range=0.15,
        rms_norm_eps=1e-6, pad_token_id=PAD, bos_token_id=START, eos_token_id=END, tie_word_embeddings=False,
        attn_implementation="eager", **more,
    )  # fmt: skip
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        whole = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
        for name, one in (*whole.named_parameters(), *whole.named_buffers()):
            if one.dim() == 1 and ("norm" in name or "bias" in name):
                one.copy_(torch.randn_like(one) * 0.2 + ("norm" in name))
        outer = {name: 1 + 0.2 * torch.randn(64) for name in ("enorm", "hnorm", "last")}
        outer["eh_proj"] = 0.15 * torch.randn(64, 128)
        embedding, head = whole.model.embed_tokens.weight, whole.lm_head.weight
        if copies == "others":
            embedding, head = torch.randn_like(embedding), torch.randn_like(head)
    whole.generation_config = GenerationConfig(eos_token_id=END, pad_token_id=PAD, bos_token_id=START)
    whole.save_pretrained(folder)
    save_byte_tokenizer(folder)
    names = NAMES[layout]
    tensors = {_renamed(name, names): one for name, one in load_file(folder / WEIGHTS).items()}
    tensors |= {
        f"{names[0]}{name}.weight": outer[key]
        for name, key in zip(names[2:], ("enorm", "hnorm", "eh_proj", "last"), strict=True)
    }
    if copies:
        tensors |= {f"{names[0]}embed_tokens.weight": embedding, f"{names[0]}shared_head.head.weight": head}
    save_file({name: one.clone().contiguous() for name, one in tensors.items()}, folder / WEIGHTS, {"format": "pt"})
    written = json.loads((folder / "config.json").read_text())
    kinds = {key: written[key][:LAYERS] for key in ("layer_types", "mlp_layer_types") if written.get(key)}
    say(folder, num_hidden_layers=LAYERS, **{"num_nextn_predict_layers": 1, **kinds, **said})
    return ModelAhead(
        folder=folder, whole=whole, outer=outer, embedding=embedding, head=head, names=names,
        state_first=layout == "MiMo",
    )  # fmt: skip


def say(folder: Path, **changes: Any) -> None:
    """Change what a config says; None takes it out."""
    file = folder / "config.json"
    found = json.loads(file.read_text()) | changes
    file.write_text(json.dumps({key: value for key, value in found.items() if value is not None}))


def put(folder: Path, changes: dict[str, torch.Tensor | None]) -> None:
    """Change tensors by their names in the file; None takes one out."""
    found = load_file(folder / WEIGHTS) | changes
    save_file({name: one for name, one in found.items() if one is not None}, folder / WEIGHTS, {"format": "pt"})


def _renamed(name: str, names: Names) -> str:
    return name.replace(f"model.layers.{LAYERS}.", names[0] + names[1])
