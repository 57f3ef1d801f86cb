"""Tiny random models of transformers' own, in memory, each of its parts in use; and how they are quantized."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from transformers import AutoConfig, AutoModelForCausalLM

from qualgate.engine.kernels import choose_kernels
from qualgate.quant.activations import PER_TOKEN
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.packing import quantize_weight
from qualgate.records import QuantizeRecipe

VOCABULARY = 260
SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 4096, "initializer_range": 0.15,
    "pad_token_id": 0, "tie_word_embeddings": False,
}  # fmt: skip
# What configs of architectures have to say beside the sizes that most of them name alike.
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


def tiny(arch: str, seed: int = 0, **more: Any) -> Any:
    """A model in float32, in evaluation. Norms' weights and biases are drawn too: as made they are ones and zeros, and
    one that is left out would not be missed."""
    config = AutoConfig.for_model(arch, **(SIZES | more))
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval().requires_grad_(False)
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.copy_(torch.randn_like(parameter) * 0.2 + (0.0 if name.endswith("bias") else 1.0))
    return model


def another(model: Any) -> Any:
    """One of its own with the same numbers."""
    return copy.deepcopy(model)


def quantized(model: Any, recipe: QuantizeRecipe, which: Callable[[str], bool] = lambda _: True) -> Any:
    """Every linear layer but the head packed by `recipe`, where `which` says so of its name; not yet fused."""
    for name, module in list(model.named_modules()):
        if type(module) is nn.Linear and name != "lm_head" and which(name):
            packed = quantize_weight(module.weight, recipe)
            layer = QuantizedLinear(packed, module.bias, PER_TOKEN[recipe.activations])
            parent, _, last = name.rpartition(".")
            setattr(model.get_submodule(parent), last, layer)
    return model


def fused(model: Any) -> Any:
    """Its packed layers in the hands of the kernels in C."""
    choose_kernels(model, "fused")
    return model
