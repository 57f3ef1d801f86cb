"""The tiny model as a GGUF file: its header as its converter writes it, Q8_0 blocks, rows of q and k turned."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tests.verification.references.edited_folders.made import HEADS, KV, Folder, Tensors

Header = dict[str, Any]
Blocks = dict[str, tuple[str, np.ndarray]]  # GGUF's name → (type, array)
WHOLE = {"model.embed_tokens": "token_embd", "lm_head": "output", "model.norm": "output_norm"}
PARTS = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output", "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm", "post_attention_layernorm": "ffn_norm",
}  # fmt: skip


def named(name: str) -> str:
    """A tensor's name in GGUF."""
    module = name.removesuffix(".weight")
    if module in WHOLE:
        return f"{WHOLE[module]}.weight"
    _, _, layer, part = module.split(".", 3)
    return f"blk.{layer}.{PARTS[part]}.weight"


def _turned(weight: torch.Tensor, heads: int) -> torch.Tensor:
    """Rows as llama.cpp's converter orders them."""
    return weight.unflatten(0, (heads, 2, -1)).swapaxes(1, 2).flatten(0, 2)


def _back(weight: torch.Tensor, heads: int) -> torch.Tensor:
    return weight.unflatten(0, (heads, -1, 2)).swapaxes(1, 2).flatten(0, 2)


def _heads(name: str) -> int:
    return HEADS if name.endswith("attn_q.weight") else KV if name.endswith("attn_k.weight") else 0


def _q8(weight: torch.Tensor) -> np.ndarray:
    """Blocks of 32: a float16 scale, 32 signed bytes."""
    groups = weight.float().unflatten(1, (-1, 32))
    scales = (groups.abs().amax(-1, keepdim=True) / 127).half()
    codes = (groups / scales.float()).round().clamp(-127, 127).to(torch.int8)
    raw = np.concatenate([scales.numpy().view(np.uint8), codes.numpy().view(np.uint8)], -1)
    return raw.reshape(len(weight), -1)


def folder(plain: Folder) -> Folder:
    """`plain` with a GGUF file in place of its weights."""
    found = plain.copied()
    config = plain.config
    tokenizer = json.loads(plain.other["tokenizer.json"])
    tokens = sorted(tokenizer["model"]["vocab"], key=tokenizer["model"]["vocab"].get)
    added = {one["id"]: one["content"] for one in tokenizer["added_tokens"]}
    tokens = [added.get(place, token) for place, token in enumerate(tokens)]
    tokens += [added[place] for place in sorted(added) if place >= len(tokens)]
    header: Header = {
        "general.architecture": "llama", "general.name": "tiny", "general.file_type": 7,
        "general.quantization_version": 2,
        "llama.block_count": config["num_hidden_layers"], "llama.context_length": config["max_position_embeddings"],
        "llama.embedding_length": config["hidden_size"], "llama.feed_forward_length": config["intermediate_size"],
        "llama.attention.head_count": HEADS, "llama.attention.head_count_kv": KV,
        "llama.attention.layer_norm_rms_epsilon": config["rms_norm_eps"],
        "llama.attention.key_length": config["head_dim"], "llama.attention.value_length": config["head_dim"],
        "llama.rope.freq_base": 10000.0, "llama.rope.dimension_count": config["head_dim"],
        "llama.vocab_size": config["vocab_size"],
        "tokenizer.ggml.model": "gpt2", "tokenizer.ggml.pre": "smollm", "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3 if place in added else 1 for place in range(len(tokens))],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in tokenizer["model"]["merges"]],
        "tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.padding_token_id": 0, "tokenizer.ggml.add_bos_token": False,
        "tokenizer.chat_template": plain.other["chat_template.jinja"].decode(),
    }  # fmt: skip
    blocks: Blocks = {}
    for name, weight in plain.tensors.items():
        target = named(name)
        turned = _turned(weight, heads) if (heads := _heads(target)) else weight
        blocks[target] = ("Q8_0", _q8(turned)) if weight.dim() == 2 else ("F32", weight.float().numpy())
    found.format, found.weights, found.gguf = "gguf", {}, (header, blocks)
    return found


def write(path: Path, header: Header, blocks: Blocks) -> None:
    import gguf

    writer = gguf.GGUFWriter(path, header["general.architecture"])
    kinds = {bool: gguf.GGUFValueType.BOOL, int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32,
             str: gguf.GGUFValueType.STRING}  # fmt: skip
    for name, value in header.items():
        if name == "general.architecture":
            continue
        if isinstance(value, list):
            writer.add_array(name, value)
        else:
            writer.add_key_value(name, value, kinds[type(value)])
    for name, (kind, array) in blocks.items():
        raw = None if kind == "F32" else gguf.GGMLQuantizationType[kind]
        writer.add_tensor(name, array, raw_dtype=raw)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def floats_of(header: Header, blocks: Blocks) -> Tensors:
    """The float32 weights that the file means."""
    names = {own: target for target, own in WHOLE.items()}
    parts = {own: target for target, own in PARTS.items()}
    found = {}
    for name, (kind, array) in blocks.items():
        weight = torch.tensor(array)
        if kind == "Q8_0":
            raw = array.reshape(len(array), -1, 34)
            scales = torch.tensor(raw[..., :2].copy().view(np.float16).astype(np.float32))
            weight = (torch.tensor(raw[..., 2:].copy().view(np.int8).astype(np.float32)) * scales).flatten(1)
        if heads := _heads(name):
            weight = _back(weight, heads)
        stem = name.removesuffix(".weight")
        if stem in names:
            found[f"{names[stem]}.weight"] = weight
        else:
            _, layer, part = stem.split(".")
            found[f"model.layers.{layer}.{parts[part]}.weight"] = weight
    return found
