"""What configs of architectures that are made tiny have to say, beside the sizes that most of them name alike."""

from __future__ import annotations

from typing import Any

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
