"""LoRA folders as PEFT saves them, written from its published layout: PEFT itself is not in this environment."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.tiny_models import VOCABULARY

WIDTH = 64  # of the tiny models
SHAPES = {  # of their linear layers: [out_features, in_features]
    "self_attn.q_proj": (64, 64),
    "self_attn.k_proj": (32, 64),
    "self_attn.v_proj": (32, 64),
    "self_attn.o_proj": (64, 64),
    "mlp.gate_proj": (128, 64),
    "mlp.up_proj": (128, 64),
    "mlp.down_proj": (64, 128),
}
EVERY = tuple(SHAPES)
TWO = ("self_attn.q_proj", "self_attn.v_proj")


def save_adapter(
    folder: Path,
    *,
    parts: Sequence[str] = EVERY,
    layers: Sequence[int] = (0, 1),
    ranks: Mapping[str, int] | None = None,
    head: bool = False,
    exact: bool = False,
    seed: int = 0,
    config: Mapping[str, Any] | None = None,
) -> Path:
    """An adapter of the tiny models of `tests.tiny_models`, strong enough to change answers. ranks: by part, 4 else;
    config: keys on top; exact: of numbers whose products and sums float32 holds to the bit."""
    import torch
    from safetensors.torch import save_file

    folder.mkdir(parents=True, exist_ok=True)
    draw = torch.Generator().manual_seed(seed)
    modules = {f"model.layers.{layer}.{part}": SHAPES[part] for layer in layers for part in parts}
    modules |= {"lm_head": (VOCABULARY, WIDTH)} if head else {}

    def matrix(*shape: int) -> torch.Tensor:
        if exact:
            return torch.randint(-4, 5, shape, generator=draw) / 32
        return 0.15 * torch.randn(shape, generator=draw)

    tensors = {}
    for name, (rows, columns) in modules.items():
        rank = (ranks or {}).get(name.rpartition(".layers.")[2][2:], 4)
        tensors[f"base_model.model.{name}.lora_A.weight"] = matrix(rank, columns)
        tensors[f"base_model.model.{name}.lora_B.weight"] = matrix(rows, rank)
    save_file(tensors, folder / "adapter_model.safetensors", {"format": "pt"})
    names = sorted({part.rpartition(".")[2] for part in parts}) + (["lm_head"] if head else [])
    write_config(folder, {"target_modules": names, **(config or {})})
    return folder


def write_config(folder: Path, more: Mapping[str, Any]) -> None:
    said = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "acme/tiny", "r": 4, "lora_alpha": 8,
        "lora_dropout": 0.05, "bias": "none", "fan_in_fan_out": False, "inference_mode": True, "use_dora": False,
        "init_lora_weights": True, "modules_to_save": None, "rank_pattern": {}, "alpha_pattern": {},
        "peft_version": "0.18.0", "revision": None, "megatron_core": "megatron.core", "loftq_config": {},
        "layers_to_transform": None, "layers_pattern": None, "use_rslora": False,
    }  # fmt: skip
    (folder / "adapter_config.json").write_text(json.dumps(said | dict(more)), encoding="utf-8")
