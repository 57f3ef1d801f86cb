"""Architectures of transformers, made tiny, with random weights that are always the same."""

from __future__ import annotations

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tests.tiny_models import VOCABULARY

SIZES = {"hidden_size": 64, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "max_position_embeddings": 128}  # fmt: skip
NAMED_OTHERWISE = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 128}
EXPERTS = {"num_experts": 4, "num_local_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32}
MLA = {"q_lora_rank": 16, "kv_lora_rank": 16, "qk_nope_head_dim": 8, "qk_rope_head_dim": 8, "v_head_dim": 8,
       "num_key_value_heads": 4, "head_dim": 8, "n_routed_experts": 4, "num_experts_per_tok": 2, "n_group": 2,
       "topk_group": 1, "moe_intermediate_size": 32, "first_k_dense_replace": 1}  # fmt: skip
ALIBI = {"bloom": {"hidden_size": 32, "n_layer": 2, "n_head": 4}, "mpt": {"d_model": 32, "n_layers": 2, "n_heads": 4}}
NO_DECODERS: dict[str, dict[str, Any]] = {
    "bert": {}, "roberta": {}, "electra": {}, "megatron-bert": {}, "xlm": {"emb_dim": 32, "n_layers": 2, "n_heads": 4},
    "openai-gpt": NAMED_OTHERWISE, "rwkv": {"attention_hidden_size": 64},
}  # fmt: skip


def made(arch: str, more: dict[str, Any] | None = None) -> Any:
    """A model in eval mode. more: what its config says beside or instead of SIZES."""
    more = more or {}
    sizes = {} if {"n_embd", "d_model", "n_layer", "emb_dim"} & more.keys() else SIZES
    with torch.random.fork_rng():
        torch.manual_seed(0)
        config = AutoConfig.for_model(arch, vocab_size=VOCABULARY, pad_token_id=1, **{**sizes, **more})
        return AutoModelForCausalLM.from_config(config).eval().requires_grad_(False)
