"""A LoRA folder as PEFT saves it, over every linear layer of the tiny model."""

from __future__ import annotations

import torch

from tests.verification.references.edited_folders.made import Folder, Tensors, floats, modules

RANK, ALPHA = 4, 8
FILE = "adapter_model.safetensors"
SAID = {
    "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "acme/tiny", "r": RANK,
    "lora_alpha": ALPHA, "lora_dropout": 0.05, "bias": "none", "fan_in_fan_out": False, "inference_mode": True,
    "use_dora": False, "init_lora_weights": True, "modules_to_save": None, "rank_pattern": {}, "alpha_pattern": {},
    "peft_version": "0.18.0", "revision": None, "megatron_core": "megatron.core", "loftq_config": {},
    "layers_to_transform": None, "layers_pattern": None, "use_rslora": False,
    "target_modules": ["down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj"],
}  # fmt: skip


def adapter() -> Folder:
    draw = torch.Generator().manual_seed(7)
    tensors: Tensors = {}
    for module in modules():
        rows, columns = floats()[f"{module}.weight"].shape
        for part, shape in (("lora_A", (RANK, columns)), ("lora_B", (rows, RANK))):
            tensors[f"base_model.model.{module}.{part}.weight"] = 0.1 * torch.randn(shape, generator=draw)
    return Folder("adapter", {FILE: tensors}, {"adapter_config.json": dict(SAID)})


def merged(folder: Folder) -> Tensors:
    """The baseline's weights with the adapter added: W + alpha / r · B A (Hu et al. 2021), as its config scales it."""
    found = {name: one.float() for name, one in floats().items()}
    said = folder.json["adapter_config.json"]
    scale = said["lora_alpha"] / (said["r"] ** 0.5 if said["use_rslora"] else said["r"])
    for module in modules():
        a, b = (folder.tensors.get(f"base_model.model.{module}.{part}.weight") for part in ("lora_A", "lora_B"))
        if a is not None and b is not None:
            found[f"{module}.weight"] = found[f"{module}.weight"] + scale * b.float() @ a.float()
    return found
