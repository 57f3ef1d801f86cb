"""Tensors that an architecture has no place for: which stop a run, and which are left out and listed."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM

from qualgate.engine.load import load_arm
from qualgate.engine.loaded import LoadedArm
from qualgate.errors import UsageError
from qualgate.records import ArmSpec
from tests.depth import with_proofs
from tests.quant.readers.models import gptq_folder
from tests.tiny_models import END, PAD, START, VOCABULARY, save_byte_tokenizer

MLA = {
    "q_lora_rank": 8,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "qk_nope_head_dim": 4,
    "v_head_dim": 8,
    "head_dim": 4,
}
EXPERTS = {"n_routed_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "n_group": 1, "topk_group": 1}


def model_of(folder: Path, arch: str, **more) -> Path:
    """A model of `arch` as transformers itself saves it."""
    sizes = {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
    sizes |= {} if arch.startswith("gpt") else {"num_key_value_heads": 4}
    tokens = {"pad_token_id": PAD, "bos_token_id": START, "eos_token_id": END}
    config = AutoConfig.for_model(arch, vocab_size=VOCABULARY, max_position_embeddings=64, **sizes, **tokens, **more)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    save_byte_tokenizer(folder, context=64)
    return folder


def holding(folder: Path, more: dict[str, torch.Tensor], *, without: str = "") -> Path:
    """The folder with `more` among its tensors, and a prefix of their names dropped."""
    (file,) = folder.glob("*.safetensors")
    tensors = {name.removeprefix(without): tensor for name, tensor in load_file(file).items()}
    save_file(tensors | {name: tensor.clone() for name, tensor in more.items()}, file, {"format": "pt"})
    return folder


def loads(folder: Path, name: str = "baseline") -> LoadedArm:
    return load_arm(ArmSpec(name=name, model=str(folder)), folder.parent, {}, device="cpu")


def masks(prefix: str, kind: torch.dtype) -> dict[str, torch.Tensor]:
    """What GPT models stored of every layer until 2023: its causal mask, what it hides with, and its rotation."""
    found = {}
    for layer in range(2):
        found[f"{prefix.format(layer)}.bias"] = torch.ones(1, 1, 64, 64).tril().to(kind)
        found[f"{prefix.format(layer)}.masked_bias"] = torch.tensor(-1e9)
        found[f"{prefix.format(layer)}.rotary_emb.inv_freq"] = torch.ones(2)
    return found


ONE = torch.ones(1)
LAYOUTS = {
    "GPT-2 without its head's name": ("gpt2", {}, masks("h.{}.attn", torch.uint8), "transformer."),
    "GPT-2": ("gpt2", {}, masks("transformer.h.{}.attn", torch.float32), ""),
    "GPT-J": ("gptj", {"rotary_dim": 4}, masks("transformer.h.{}.attn", torch.bool), ""),
    "GPT-NeoX": ("gpt_neox", {}, masks("gpt_neox.layers.{}.attention", torch.bool), ""),
    "old Llama": ("llama", {}, {f"model.layers.{n}.self_attn.rotary_emb.inv_freq": torch.ones(4) for n in (0, 1)}, ""),
    "tied": ("llama", {"tie_word_embeddings": True}, {}, ""),
    "MTP by name": ("qwen2", {}, {"mtp.layers.0.mlp.up_proj.weight": torch.ones(4, 4), "mtp.norm.weight": ONE}, ""),
    "MTP as a layer": (
        "glm4_moe",
        {"num_nextn_predict_layers": 1, "head_dim": 8, **EXPERTS},
        {"model.layers.2.eh_proj.weight": torch.ones(4, 4), "model.layers.2.mlp.gate.weight": ONE},
        "",
    ),
    "MTP that transformers knows": ("deepseek_v3", {**MLA, **EXPERTS}, {"model.layers.61.enorm.weight": ONE}, ""),
    "KV scales": ("llama", {}, {f"model.layers.{n}.self_attn.{s}_scale": ONE for n in (0, 1) for s in "kvq"}, ""),
    "KV scales of projections": ("qwen2", {}, {"model.layers.0.self_attn.k_proj.output_scale": ONE}, ""),
    "vision": ("llama", {}, {"vision_tower.encoder.layers.0.fc.weight": ONE, "multi_modal_projector.weight": ONE}, ""),
}  # fmt: skip


@pytest.mark.parametrize("layout", with_proofs(LAYOUTS, {"GPT-2", "GPT-J", "MTP by name", "tied", "vision"}))
def test_a_real_layout_loads_and_what_is_left_out_is_listed(tmp_path, layout):
    arch, more, extra, without = LAYOUTS[layout]
    arm = loads(holding(model_of(tmp_path / "m", arch, **more), extra, without=without))
    assert sum(arm.footprint.left_out.values()) == len(extra)
    if layout == "KV scales":  # a star for each number
        assert arm.footprint.left_out == {f"model.layers.*.self_attn.{side}_scale": 2 for side in "kqv"}


NO_PLACE = "holds 1 tensor that its architecture has no place for, such as {}"
DROPPED = r"declares no quantization.*scales dropped"
STRANGE = {
    "a bias that the architecture has not": ("self_attn.bias", torch.ones(32), NO_PLACE),
    "a square that is no mask": ("mlp.bias", torch.ones(8, 8), NO_PLACE),
    "an adapter": ("self_attn.q_proj.lora_A.weight", torch.ones(2, 32), NO_PLACE),
    "a layer more, of another kind": ("model.layers.2.mlp.own_proj.weight", torch.ones(64, 32), NO_PLACE),
    "another model's norm": ("self_attn.q_norm.weight", torch.ones(8), NO_PLACE),
    "a scale": ("mlp.up_proj.channel_scale", torch.ones(64), DROPPED),
    "zero points": ("mlp.up_proj.zero_points", torch.ones(64), DROPPED),
    "a smooth scale": ("mlp.smooth_scale", torch.ones(64), DROPPED),
    "integers": ("mlp.up_proj.weight", torch.ones(64, 32, dtype=torch.int32), r"its tensor {} \(I32\)"),
}


@pytest.fixture(scope="module")
def llama(tmp_path_factory):
    return model_of(tmp_path_factory.mktemp("llama") / "m", "llama")


@pytest.mark.parametrize("fault", STRANGE)
def test_what_would_have_had_a_say_in_the_answers_stops_the_run(llama, tmp_path, fault):
    name, tensor, said = STRANGE[fault]
    name = name if name.startswith("model.") else f"model.layers.0.{name}"
    folder = holding(Path(shutil.copytree(llama, tmp_path / "m")), {name: tensor})
    with pytest.raises(UsageError, match=said.format(name)):
        loads(folder)


def test_a_quantized_folder_is_held_to_the_same(saved, tmp_path):
    model = Path(shutil.copytree(saved(), tmp_path / "model"))
    config = json.loads((model / "config.json").read_text())
    (model / "config.json").write_text(json.dumps(config | {"num_nextn_predict_layers": 1}))
    scales = {f"model.layers.{n}.self_attn.k_scale": ONE for n in (0, 1)}
    inside = {
        "model.layers.2.eh_proj.weight": torch.ones(4, 4),
        "model.layers.0.self_attn.bias": torch.ones(1, 1, 4, 4),
    }
    folder = holding(gptq_folder(model, tmp_path / "gptq"), scales | inside)
    assert loads(folder, "v").footprint.left_out == {
        "model.layers.*.eh_proj.weight": 1, "model.layers.*.self_attn.bias": 1, "model.layers.*.self_attn.k_scale": 2,
    }  # fmt: skip
    holding(folder, {"model.layers.0.mlp.gate.bias": torch.ones(32)})
    with pytest.raises(UsageError, match=r"no place for, such as model\.layers\.0\.mlp\.gate\.bias"):
        loads(folder, "v")
