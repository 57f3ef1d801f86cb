"""Serves a Llama folder by llama.cpp's own server, as a GGUF of it: `PYTHON llamacpp_server.py FOLDER KIND PORT NAME`,
with a Python that can import xllamacpp, gguf and numpy. KIND: F32, Q8_0 or Q4_0 of its products. NAME, under which its
model is listed, is `m` where it is left out."""

from __future__ import annotations

import json
import struct
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import xllamacpp  # of the Python that this is run by


def main(folder: Path, kind: str, port: int, name: str = "m") -> None:
    """Until it is ended."""
    with tempfile.TemporaryDirectory() as work:
        file = Path(work) / "model.gguf"
        write(folder, kind, file)
        params = xllamacpp.CommonParams()
        params.model.path, params.port, params.model_alias = str(file), port, {name}
        params.n_ctx, params.n_parallel, params.warmup, params.use_jinja = 4096, 4, False, True
        params.cpuparams.n_threads = 1
        server = xllamacpp.Server(params)
        print(server.listening_address, flush=True)
        threading.Event().wait()


def write(folder: Path, kind: str, file: Path) -> None:
    """The folder's weights and tokenizer. Its pre-tokenizer is SmolLM's: each digit by itself, else as GPT-2's."""
    config, weights = json.loads((folder / "config.json").read_text()), _tensors(folder / "model.safetensors")
    heads, to = config["num_attention_heads"], gguf.GGUFWriter(str(file), "llama")
    to.add_context_length(config["max_position_embeddings"])
    to.add_embedding_length(config["hidden_size"])
    to.add_block_count(config["num_hidden_layers"])
    to.add_feed_forward_length(config["intermediate_size"])
    to.add_head_count(heads)
    to.add_head_count_kv(config["num_key_value_heads"])
    to.add_layer_norm_rms_eps(config["rms_norm_eps"])
    to.add_rope_freq_base(config["rope_parameters"]["rope_theta"])
    _tokenizer(to, folder, config)

    def put(name: str, tensor: Any) -> None:
        if kind == "F32" or tensor.ndim == 1 or name.startswith("token_embd"):
            to.add_tensor(name, tensor)
        else:
            packed = gguf.GGMLQuantizationType[kind]
            to.add_tensor(name, gguf.quants.quantize(tensor, packed), raw_dtype=packed)

    put("token_embd.weight", weights("model.embed_tokens.weight"))
    put("output_norm.weight", weights("model.norm.weight"))
    for layer in range(config["num_hidden_layers"]):
        for theirs, ours, turned in LAYER:
            tensor = weights(f"model.layers.{layer}.{ours}.weight")
            put(f"blk.{layer}.{theirs}.weight", _turned(tensor, heads) if turned else tensor)
    to.write_header_to_file()
    to.write_kv_data_to_file()
    to.write_tensors_to_file()
    to.close()


LAYER = (  # their name, transformers' name, whether rows are in another order
    ("attn_norm", "input_layernorm", False), ("ffn_norm", "post_attention_layernorm", False),
    ("attn_q", "self_attn.q_proj", True), ("attn_k", "self_attn.k_proj", True), ("attn_v", "self_attn.v_proj", False),
    ("attn_output", "self_attn.o_proj", False), ("ffn_gate", "mlp.gate_proj", False), ("ffn_up", "mlp.up_proj", False),
    ("ffn_down", "mlp.down_proj", False),
)  # fmt: skip


def _turned(tensor: Any, heads: int) -> Any:
    """Pairs that turn together side by side; transformers has them half a head apart."""
    return tensor.reshape(heads, 2, -1, tensor.shape[1]).swapaxes(1, 2).reshape(tensor.shape)


def _tensors(file: Path) -> Callable[[str], Any]:
    raw = file.read_bytes()
    [length] = struct.unpack("<Q", raw[:8])
    said = json.loads(raw[8 : 8 + length])

    def tensor(name: str) -> Any:
        first, last = said[name]["data_offsets"]
        bits = np.frombuffer(raw[8 + length + first : 8 + length + last], "<u2")  # bfloat16
        return (bits.astype("<u4") << 16).view("<f4").reshape(said[name]["shape"])

    return tensor


def _tokenizer(to: Any, folder: Path, config: dict[str, Any]) -> None:
    said = json.loads((folder / "tokenizer.json").read_text())
    special = {one["content"]: one["id"] for one in said["added_tokens"]}
    names = {at: name for name, at in (said["model"]["vocab"] | special).items()}

    def kind(at: int) -> Any:
        if at not in names:
            return gguf.TokenType.UNUSED
        if names[at] not in special:
            return gguf.TokenType.NORMAL
        return gguf.TokenType.CONTROL if names[at].startswith("<|") else gguf.TokenType.USER_DEFINED

    places = range(config["vocab_size"])
    to.add_tokenizer_model("gpt2")
    to.add_tokenizer_pre("smollm")
    to.add_token_list([names.get(at, f"[unused {at}]") for at in places])
    to.add_token_types([kind(at) for at in places])
    to.add_token_merges([one if isinstance(one, str) else " ".join(one) for one in said["model"]["merges"]])
    to.add_eos_token_id(config["eos_token_id"])
    to.add_add_bos_token(False)
    to.add_chat_template((folder / "chat_template.jinja").read_text())


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), *sys.argv[4:])
