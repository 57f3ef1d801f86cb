"""Heads as others publish them: which are read, and what of a folder says it. Needs no torch until one is loaded.

EAGLE-3 as its authors release it: `config.json` names an architecture such as `LlamaForCausalLMEagle3`, and one
safetensors file holds `fc`, `midlayer.*` (or `layers.0.*`), `norm`, `lm_head` and, where it drafts fewer tokens than
the target has, `d2t`. Nothing in it says whose head it is but its sizes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.identity import content_hash

if TYPE_CHECKING:
    import torch

WEIGHTS = "model.safetensors"
TOKENS = 5  # of a draft whose length nobody says
TAPS = "eagle_aux_hidden_state_layer_ids"


def is_published(config: Mapping[str, Any]) -> bool:
    """Whether a folder's config is that of a head by others, of whatever layout."""
    return "speculators_model_type" in config or any(
        word in name for name in _architectures(config) for word in ("Eagle", "Medusa", "MTP", "DFlash")
    )


def check_no_layers_ahead(path: Path, config: Mapping[str, Any]) -> None:
    """UsageError for a model whose own folder holds layers that predict further tokens: they are no head of another."""
    text = config.get("text_config")
    said = next((one for one in (config, text) if isinstance(one, dict) and one.get("num_nextn_predict_layers")), None)
    if said is not None:
        raise UsageError(
            f"{path} holds a model, with a layer of its own that predicts further tokens (MTP, "
            "`num_nextn_predict_layers`). A variant of that model drafts by it: draft: {head: own}"
        )


def check_published(path: Path, config: Mapping[str, Any]) -> None:
    """NotInThisVersion for a layout that is not read, UsageError for one that cannot be."""
    said = ", ".join(_architectures(config)) or str(config.get("speculators_model_type"))
    if "speculators_model_type" in config or not any("Eagle3" in name for name in _architectures(config)):
        raise NotInThisVersion(
            f"{path}: a draft head of the layout {said}. Of heads by others this version reads EAGLE-3 as its authors "
            "publish it (architecture LlamaForCausalLMEagle3; tensors fc, midlayer.*, norm, lm_head, d2t). `qualgate "
            "draft train` makes one of any layout of ours."
        )
    if config.get("norm_before_residual") or config.get("attention_bias"):
        raise NotInThisVersion(
            f"{path}: an EAGLE-3 head with `norm_before_residual` or `attention_bias`, which is not read yet."
        )
    if not (path / WEIGHTS).is_file():
        raise UsageError(
            f"{path} holds no {WEIGHTS}. A head that was published as pickles (pytorch_model.bin) is not opened: save "
            "it as safetensors first."
        )


def hash_of(path: Path, config: Mapping[str, Any]) -> tuple[str, int]:
    """sha256 over both files, and the bytes of its numbers' file."""
    digest, size = hashlib.sha256(), 0
    with (path / WEIGHTS).open("rb") as file:
        while piece := file.read(1 << 20):
            digest.update(piece)
            size += len(piece)
    return content_hash([config, digest.hexdigest()]), size


def shape_said(config: Mapping[str, Any]) -> dict[str, Any]:
    """Of `HeadShape`, by the names of transformers. KeyError for one that is not said."""
    heads = config["num_attention_heads"]
    rope = config.get("rope_parameters") or {}
    return {
        "width": config["hidden_size"],
        "vocabulary": config["vocab_size"],
        "heads": heads,
        "kv_heads": config.get("num_key_value_heads") or heads,
        "head_dim": config.get("head_dim") or config["hidden_size"] // heads,
        "inner": config["intermediate_size"],
        "theta": float(config.get("rope_theta") or rope.get("rope_theta") or 10000.0),
        "eps": float(config.get("rms_norm_eps", 1e-6)),
    }


def taps(config: Mapping[str, Any], layers: int) -> tuple[int, ...]:
    """Behind how many of the target's layers its residual stream is read, three times. At the top level heads say just
    that (vLLM's key); within `eagle_config` they say after which layer, counted from 0 (SGLang's)."""
    within = (config.get("eagle_config") or {}).get(TAPS)
    said = config.get(TAPS) or [at + 1 if type(at) is int else at for at in within or ()]
    found = tuple(said) or (2, layers // 2, layers - 3)
    if len(found) != 3 or list(found) != sorted(found) or not all(type(at) is int and 0 < at < layers for at in found):
        raise UsageError(
            f"This EAGLE-3 head reads the target behind its layers {', '.join(map(str, found))}, and the target has "
            f"{layers}. It is another model's."
        )
    return found


def own_names(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """As `eagle3_tensors` names them. What only training needs is left out, and a copy of the target's embedding."""
    found = {}
    for name, tensor in tensors.items():
        short = name.removeprefix("model.").removeprefix("midlayer.").removeprefix("layers.0.")
        if short not in ("t2d", "embed_tokens.weight"):
            found[short] = tensor
    return found


def turning(config: Mapping[str, Any]) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Cosines and sines of positions, as transformers turns them for such a config."""
    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    known = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings")
    rope = ("rope_theta", "rope_scaling", "rope_parameters")
    said = {name: config[name] for name in (*known, *rope) if config.get(name) is not None}
    rotary = LlamaRotaryEmbedding(LlamaConfig(**said))

    def turned(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cosine, sine = rotary(torch.zeros(1), positions[None])
        return cosine[0].float(), sine[0].float()

    return turned


def _architectures(config: Mapping[str, Any]) -> list[str]:
    found = config.get("architectures")
    return [str(name) for name in found] if isinstance(found, list) else []
