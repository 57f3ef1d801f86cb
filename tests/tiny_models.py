"""Tiny random models with a byte tokenizer, saved as a user's model folder would be. Under a second each."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Literal

SPECIAL = ("<|pad|>", "<|start|>", "<|end|>")
PAD, START, END = 256, 257, 258  # after the 256 bytes
VOCABULARY = 260

CHAT_TEMPLATE = (
    "{% if tools %}<|start|>tools\n{{ tools | tojson }}<|end|>{% endif %}"
    "{% for message in messages %}<|start|>{{ message.role }}\n{{ message.content }}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)


def save_tiny_model(
    folder: str | Path,
    *,
    arch: Literal["llama", "qwen2", "gemma2", "gpt_neox"] = "llama",
    seed: int = 0,
    layers: int = 2,
    width: int = 64,
    context: int = 512,
    dtype: str = "bfloat16",
    eos_token_ids: Sequence[int] = (END,),
) -> Path:
    """Write config, safetensors, tokenizer and generation config into `folder` and return it.

    The weights are drawn wide enough that logits are sharp (near ties are rare). A random model hardly ever ends
    by itself; more `eos_token_ids` (bytes 0..255) make answers of many lengths. gemma2 has a sliding window of 32 and
    soft-capped logits; qwen2 has biases; gpt_neox a fused query_key_value.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig

    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    extra = {
        "llama": {"num_key_value_heads": 2, "tie_word_embeddings": False},
        "qwen2": {"num_key_value_heads": 2, "tie_word_embeddings": False},
        "gemma2": {"num_key_value_heads": 2, "head_dim": 16, "sliding_window": 32, "tie_word_embeddings": False},
        "gpt_neox": {"tie_word_embeddings": False},
    }[arch]
    config = AutoConfig.for_model(
        arch,
        vocab_size=VOCABULARY,
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=context,
        initializer_range=0.15,
        pad_token_id=PAD,
        bos_token_id=START,
        eos_token_id=END,
        **extra,
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = AutoModelForCausalLM.from_config(config, dtype=getattr(torch, dtype))
    model.generation_config = GenerationConfig(eos_token_id=list(eos_token_ids), pad_token_id=PAD, bos_token_id=START)
    model.save_pretrained(folder)
    save_byte_tokenizer(folder, context=context)
    return folder


def save_byte_tokenizer(folder: Path, *, context: int = 512) -> None:
    """A tokenizer whose 256 first ids are the bytes (in their byte-level order), then the special tokens."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    alphabet = {letter: index for index, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "pad_token": SPECIAL[0],
        "bos_token": SPECIAL[1],
        "eos_token": SPECIAL[2],
        "model_max_length": context,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2), encoding="utf-8")
    (folder / "chat_template.jinja").write_text(CHAT_TEMPLATE, encoding="utf-8")
