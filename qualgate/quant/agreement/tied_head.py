"""The output head of a file held against a config that ties it to the embedding."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from qualgate.errors import UsageError
from qualgate.quant.agreement.table import READINGS
from qualgate.quant.formats import Format
from qualgate.quant.shards import Shards

if TYPE_CHECKING:
    import torch

Head = Literal["file", "embedding"]
_HEAD = re.compile(r"(^|\.)(lm_head|embed_out)\.(?!bias)")
_EMBEDDING = re.compile(r"(^|\.)(embed_tokens|wte|word_embeddings|embed_in|tok_embeddings)\.weight$")


def may_differ(shards: Shards, config: Mapping[str, Any]) -> bool:
    """Return whether config.json does not rule out a tied head, and the file holds an output head beside the
    embedding."""
    text = config.get("text_config")
    for settings in (text if isinstance(text, dict) else {}, config):
        if "tie_word_embeddings" in settings:
            if settings["tie_word_embeddings"] is False:
                return False
            break
    return bool(_first(shards, _HEAD)) and bool(_first(shards, _EMBEDDING))


def chosen_head(shards: Shards, format: Format | None, read_as: str | None) -> Head | None:
    """Return which head counts if the config ties it to the embedding: None if only one exists, or both are equal.

    UsageError where they differ and `read_as` names no server, as these do not agree.
    """
    if format is not None and format.method == "gguf":
        return "file" if "output.weight" in shards.entries else None  # the header has no flag: llama.cpp takes it
    head, embedding = _first(shards, _HEAD), _first(shards, _EMBEDDING)
    if not head or not embedding or _equal(shards, format, head, embedding):
        return None
    if read_as is not None:
        return "embedding" if read_as in ("vllm", "sglang") else "file"
    raise UsageError(
        f"{shards.folder / 'config.json'} ties the output head to the embedding, but {shards.entries[head].file.name} "
        f"holds {head} with other values than {embedding}: {READINGS['tied head'].sentence}. Set `tie_word_embeddings: "
        "false` there if the head is right, remove the head if it is wrong, or write `read_as: transformers` (or "
        "vllm, sglang, llama.cpp) beside the model."
    )


def _first(shards: Shards, pattern: re.Pattern[str]) -> str:
    """Return the first tensor name, in order, that matches; "" for none."""
    return min((name for name in shards.entries if pattern.search(name)), default="")


def _equal(shards: Shards, format: Format | None, head: str, embedding: str) -> bool:
    """Return whether the tensor `head` holds the same numbers as `embedding`; a quantized head is dequantized first."""
    import torch

    embedding_weight = _tensor(shards, embedding).float()
    if head.endswith(".weight") and shards.entries[head].dtype in ("F16", "BF16", "F32", "F64"):
        return torch.equal(_tensor(shards, head).float(), embedding_weight)
    from qualgate.quant.readers.checkpoint import read_checkpoint  # which reads by these checks
    from qualgate_kernels.dequantize import dequantize_torch

    module = f"{head.rpartition('lm_head')[0]}lm_head" if "lm_head" in head else "embed_out"
    head_shards = replace(
        shards,
        entries={name: entry for name, entry in shards.entries.items() if name.startswith(f"{module}.")},
        metadata={name: text for name, text in shards.metadata.items() if name.startswith(f"{module}.")},
    )
    layer = read_checkpoint(head_shards, format).layers.get(module)
    return layer is not None and torch.equal(dequantize_torch(layer.weight), embedding_weight)


def _tensor(shards: Shards, name: str) -> torch.Tensor:
    from safetensors import safe_open

    with safe_open(shards.entries[name].file, framework="pt") as file:
        return file.get_tensor(name)
