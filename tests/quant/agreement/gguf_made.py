"""GGUF headers as llama.cpp's converter writes them, by the `gguf` package's own vocabulary reader."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import gguf
import numpy as np

from qualgate import refmodel

PLAIN = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja")


def beside(out: Path, config: dict[str, Any] | None = None) -> Path:
    """The shipped model's small files, with other keys of config.json; None takes one out."""
    out.mkdir()
    for name in PLAIN:
        shutil.copy(refmodel.PATH / name, out)
    changed = json.loads((out / "config.json").read_text()) | (config or {})
    (out / "config.json").write_text(json.dumps({key: one for key, one in changed.items() if one is not None}))
    return out


def with_header(
    folder: Path, edits: dict[str, Any] | None = None, tensors: dict[str, np.ndarray] | None = None
) -> Path:
    """Puts model.gguf into `folder`: the header of its files, then `edits`; None takes a key out."""
    writer = gguf.GGUFWriter(folder / "model.gguf", "llama")
    config = json.loads((folder / "config.json").read_text())
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    writer.add_rope_dimension_count(config["head_dim"])
    writer.add_vocab_size(config["vocab_size"])
    tokens, types = vocabulary(folder, config["vocab_size"])
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    gguf.SpecialVocab(folder, load_merges=True).add_to_gguf(writer)
    fields = writer.kv_data[0]
    for key, value in (edits or {}).items():
        fields.pop(key, None)
        if value is not None:
            writer.add_key_value(key, value, *_type(value))
    for name, tensor in {"output_norm.weight": np.ones(4, np.float32), **(tensors or {})}.items():
        writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return folder


def vocabulary(folder: Path, size: int) -> tuple[list[str], list[int]]:
    """Texts and types of all tokens, padded as the converter pads."""
    written = json.loads((folder / "tokenizer.json").read_text())
    vocab = written["model"]["vocab"]
    texts = vocab.items() if isinstance(vocab, dict) else [(text, token) for token, (text, _) in enumerate(vocab)]
    known = {token: text for text, token in texts}
    known |= {one["id"]: one["content"] for one in written["added_tokens"]}
    kinds = {one["id"]: 3 if one["special"] else 4 for one in written["added_tokens"]}
    return (
        [known.get(token, f"[PAD{token}]") for token in range(size)],
        [kinds.get(token, 1 if token in known else 5) for token in range(size)],
    )


def _type(value: Any) -> tuple[Any, ...]:
    if isinstance(value, list):
        return gguf.GGUFValueType.ARRAY, gguf.GGUFValueType.get_type(value[0])
    kinds = {bool: "BOOL", int: "UINT32", float: "FLOAT32", str: "STRING"}
    return (gguf.GGUFValueType[kinds[type(value)]],)
