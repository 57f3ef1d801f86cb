"""Faults of GGUF headers (kind 5) and of adapters (10)."""

from __future__ import annotations

import torch

from tests.verification.references.edited_folders.edits import (
    ANY,
    DOWN,
    Edit,
    Edited,
    both,
    each,
    file,
    gone,
    put,
    renamed,
)
from tests.verification.references.edited_folders.made import Folder

BY_HEADER = ("the files beside it", "the files beside it", "the files beside it", "the header")
OTHER = "{% for message in messages %}{{ message.content }}{% endfor %}"


def header(**keys) -> Edit:
    """Keys of the header; None takes one out. `llama__rope` is llama.rope."""

    def edit(folder: Folder) -> None:
        said = folder.gguf[0]
        for key, value in keys.items():
            key = key.replace("__", ".")
            if value is None:
                said.pop(key, None)
            else:
                said[key] = value

    return edit


def listed(key: str, change) -> Edit:
    def edit(folder: Folder) -> None:
        folder.gguf[0][key] = change(list(folder.gguf[0][key]))

    return edit


def block(before: str, after: str | None) -> Edit:
    """A tensor renamed, or taken out."""

    def edit(folder: Folder) -> None:
        held = folder.gguf[1].pop(before)
        if after:
            folder.gguf[1][after] = held

    return edit


def _turned(folder: Folder) -> None:
    """Rows of q as transformers has them: a converter that forgot to turn them, said to be llama's."""
    kind, raw = folder.gguf[1]["blk.0.attn_q.weight"]
    folder.gguf[1]["blk.0.attn_q.weight"] = (kind, raw[::-1].copy())


def _swapped(rows: list, one: int, other: int) -> list:
    rows[one], rows[other] = rows[other], rows[one]
    return rows


T = "tokenizer.ggml"
ROWS: list[tuple[str, Edit, tuple[str, ...]]] = [
    ("eos", header(tokenizer__ggml__eos_token_id=0), ("eos_token_id|stop",)),
    ("eos of a word", header(tokenizer__ggml__eos_token_id=33), ("eos_token_id|stop",)),
    ("no eos", header(tokenizer__ggml__eos_token_id=None), ("eos_token_id|stop",)),
    ("end of turn of another token", header(tokenizer__ggml__eot_token_id=33), ("eot_token_id|stop",)),
    ("bos added", header(tokenizer__ggml__add_bos_token=True, tokenizer__ggml__bos_token_id=1), ("add_bos_token|bos",)),
    ("eos added", header(tokenizer__ggml__add_eos_token=True), ("add_eos_token",)),
    ("space before", header(tokenizer__ggml__add_space_prefix=True), ("add_space_prefix",)),
    ("chat template", header(tokenizer__chat_template=OTHER), ("template",)),
    ("no chat template", header(tokenizer__chat_template=None), ("template",)),
    ("tool template", header(**{"tokenizer.chat_template.tool_use": OTHER}), ("template",)),
    ("tokens swapped", listed(f"{T}.tokens", lambda rows: _swapped(rows, 300, 301)), ("token",)),
    ("a token less", both(listed(f"{T}.tokens", lambda rows: rows[:-1]), listed(f"{T}.token_type",
     lambda rows: rows[:-1])), ("token",)),
    ("token types", listed(f"{T}.token_type", lambda rows: [1] * len(rows)), ("token_type",)),
    ("merges swapped", listed(f"{T}.merges", lambda rows: _swapped(rows, 0, 1)), ("merges",)),
    ("merges fewer", listed(f"{T}.merges", lambda rows: rows[:-1]), ("merges",)),
    ("pre-tokenizer", header(tokenizer__ggml__pre="llama-bpe"), ("tokenizer.ggml.pre|pre-tokenizer",)),
    ("tokenizer model", header(tokenizer__ggml__model="llama"), ("tokenizer.ggml.model|tokenizer",)),
    ("rope base", header(llama__rope__freq_base=500000.0), ("freq_base",)),
    ("rope scaling", header(llama__rope__scaling__type="linear", llama__rope__scaling__factor=4.0), ("rope.scaling",)),
    ("rope dimensions", header(llama__rope__dimension_count=8), ("dimension_count",)),
    ("epsilon", header(llama__attention__layer_norm_rms_epsilon=1e-5), ("epsilon",)),
    ("context", header(llama__context_length=512), ("context_length",)),
    ("key heads", header(llama__attention__head_count_kv=4), ("head_count_kv|attn_k",)),
    ("heads", header(llama__attention__head_count=8, llama__attention__head_count_kv=4), ("head_count|head",)),
    ("layers", header(llama__block_count=1), ("block_count|blk.1|layers",)),
    ("width", header(llama__embedding_length=128), ("embedding_length",)),
    ("inner size", header(llama__feed_forward_length=256), ("feed_forward_length",)),
    ("architecture", header(general__architecture="qwen2"), ("architecture|qwen2|head_count",)),
    ("sliding window", header(llama__attention__sliding_window=32), ("sliding_window",)),
    ("logit scale", header(llama__logit_scale=0.5), ("logit_scale",)),
    ("soft cap", header(llama__final_logit_softcapping=30.0), ("softcapping",)),
    ("a tensor renamed", block("blk.0.ffn_up.weight", "blk.0.ffn_upp.weight"), ("ffn_up",)),
    ("a tensor gone", block("blk.1.attn_v.weight", None), ("attn_v|v_proj",)),
    ("a norm gone", block("blk.1.ffn_norm.weight", None), ("ffn_norm|post_attention_layernorm",)),
    ("head gone", block("output.weight", None), ("output|lm_head|tie",)),
    ("beside it another epsilon", put("rms_norm_eps", 1e-5), ("eps",)),
    ("beside it another template", file("chat_template.jinja", OTHER), ("template",)),
    ("beside it another context", put("max_position_embeddings", 512), ("max_position_embeddings|context",)),
    ("beside it another stop token", put("g:eos_token_id", 0), ("stop|eos",)),
]  # fmt: skip
# Keys that llama.cpp reads of other architectures or tokenizers alone.
UNREAD = ("space before", "sliding window", "logit scale", "soft cap")
GGUF = [
    Edited(
        name=f"gguf: {name}",
        kind=5,
        format="gguf",
        edit=edit,
        must=ANY if name in UNREAD else "refused",
        words=() if name in UNREAD else words,
        servers=BY_HEADER,
    )
    for name, edit, words in ROWS
]

SAID = "adapter_config.json:"
A = f"base_model.model.{DOWN}.lora_A.weight"
B = f"base_model.model.{DOWN}.lora_B.weight"
PEFT = ("as said (PEFT)", "as said", "as said", "converted")
UNUSED = ("not read",) * 3 + ("-",)  # vLLM read both before 0.12
LORA: list[tuple[str, Edit, str, tuple[str, ...]]] = [
    ("B is 0", each("weight", torch.zeros_like, "lora_B"), "refused|told", ("changes nothing|nothing",)),
    ("r of another rank", put(f"{SAID}r", 8), "refused", ("r |rank|lora_A",)),
    ("a B without its A", gone(A), "refused", ("lora_A",)),
    ("an A without its B", gone(B), "refused", ("lora_B",)),
    ("DoRA said", put(f"{SAID}use_dora", True), "refused", ("dora",)),
    ("a bias said", put(f"{SAID}bias", "all"), "refused", ("bias",)),
    ("turned", put(f"{SAID}fan_in_fan_out", True), "refused", ("fan_in_fan_out",)),
    ("another kind", put(f"{SAID}peft_type", "LOHA"), "refused", ("peft_type|LOHA",)),
    ("modules that are not saved", put(f"{SAID}target_modules", ["q_proj"]), "refused", ("target_modules|its config",)),
    ("modules that the model lacks", renamed("base_model.model.model.layers.1.mlp.down_proj",
     "base_model.model.model.layers.1.mlp.dawn_proj"), "refused", ("dawn_proj",)),
    ("a layer that the model lacks", renamed("base_model.model.model.layers.1.", "base_model.model.model.layers.9."),
     "refused", ("layers.9",)),
    ("under a multimodal name", renamed("base_model.model.model.", "base_model.model.model.language_model."),
     "refused", ("language_model",)),
    ("modules saved whole", put(f"{SAID}modules_to_save", ["lm_head"]), "refused", ("modules_to_save",)),
    ("a rank pattern", put(f"{SAID}rank_pattern", {"down_proj": 8}), "refused", ("rank|lora_A",)),
    ("layers that it is not for", put(f"{SAID}layers_to_transform", [0]), "refused", ("layers_to_transform|layers.1",)),
    ("modules excluded", put(f"{SAID}exclude_modules", ["down_proj"]), "refused", ("exclude_modules|down_proj",)),
    ("trained tokens", put(f"{SAID}trainable_token_indices", [5]), "refused", ("trainable_token_indices",)),
    ("a head of its own beside", file("new_embeddings.safetensors", b"x"), "refused|told", ("new_embeddings",)),
    ("alpha 0", put(f"{SAID}lora_alpha", 0), "refused|told", ("lora_alpha|nothing",)),
    ("an unknown key", put(f"{SAID}lora_gate", "sigmoid"), "refused|told", ("lora_gate",)),
    ("a tokenizer of its own", file("tokenizer_config.json", '{"chat_template": "x"}'), "refused|told",
     ("tokenizer_config|template|tokenizer",)),
]  # fmt: skip
ADAPTERS = [
    Edited(
        name=f"adapter: {name}",
        kind=10,
        format="adapter",
        edit=edit,
        must=must,
        words=words,
        servers=UNUSED if name in ("a head of its own beside", "a tokenizer of its own") else PEFT,
    )
    for name, edit, must, words in LORA
]
ADAPTERS += [
    Edited(name="control: rank-stabilized", kind=10, format="adapter", edit=put(f"{SAID}use_rslora", True),
           must="accepted", servers=PEFT),
    Edited(name="control: an adapter in float64", kind=10, format="adapter", must="accepted", servers=PEFT,
           edit=each("weight", lambda one: one.double())),
]  # fmt: skip
CASES = (*GGUF, *ADAPTERS)
