"""EAGLE-3 heads as published: which layouts are read, and what a folder tells about its head. Needs no torch, except
for the folders of `speculators`.

Two layouts. The authors' release: `config.json` names an architecture such as `LlamaForCausalLMEagle3`, and one
safetensors file holds `fc`, `midlayer.*` (or `layers.0.*`), `norm`, `lm_head` and, if the head drafts fewer tokens than
the target has, `d2t`. The layout of `speculators`: the same tensors and further norms, `speculators_model_type:
eagle3`, and the layer's sizes in `transformer_layer_config`. Both describe the target by sizes alone.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualgate.errors import NotInThisVersion, UsageError, one_line
from qualgate.records.identity import content_hash

if TYPE_CHECKING:
    import torch

WEIGHTS = "model.safetensors"
TAPS = "eagle_aux_hidden_state_layer_ids"
KIND, LAYER = "speculators_model_type", "transformer_layer_config"
LAYERS = ("llama", "qwen3")  # model types of the layers that `speculators` gives its heads
NORMS = ("norm_before_fc", "fc_norm", "norm_before_residual", "norm_output")


@dataclass(frozen=True, slots=True, kw_only=True)
class Eagle3Form:
    """Options of a head, named as in `speculators`.

    taps: tapped layers of the target. norm_before_fc: one norm over all tapped states before `fc`; fc_norm: one norm
    each. norm_before_residual: the layer's residual is the normed state. norm_output: the layer's output is normed.
    head_norms: queries and keys are normed, as in Qwen3. window: positions that attention sees, 0 for all.
    """

    taps: int = 3
    norm_before_fc: bool = False
    fc_norm: bool = False
    norm_before_residual: bool = False
    norm_output: bool = False
    head_norms: bool = False
    window: int = 0


def is_published(config: Mapping[str, Any]) -> bool:
    """Return whether a config is that of a published head, of any layout."""
    return KIND in config or any(
        word in name for name in _architectures(config) for word in ("Eagle", "Medusa", "MTP", "DFlash")
    )


def check_no_layers_ahead(path: Path, config: Mapping[str, Any]) -> None:
    """Raise UsageError for a model whose own folder holds MTP layers: it is not a separate head."""
    text = config.get("text_config")
    model_config = next(
        (
            candidate
            for candidate in (config, text)
            if isinstance(candidate, dict) and candidate.get("num_nextn_predict_layers")
        ),
        None,
    )
    if model_config is not None:
        raise UsageError(
            f"{path} holds a model, with a layer of its own that predicts further tokens (MTP, "
            "`num_nextn_predict_layers`). A variant of that model drafts by it: draft: {head: own}"
        )


def published_config(path: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the config with the keys of its layer beside the others, where `speculators` put them apart.

    Raises NotInThisVersion for a layout or a layer that this version does not read, and UsageError for a folder that
    cannot be read.
    """
    kind = config.get(KIND)
    if kind != "eagle3" and (kind is not None or not any("Eagle3" in name for name in _architectures(config))):
        raise NotInThisVersion(
            f"{path}: a draft head of the layout {kind or ', '.join(_architectures(config))}. Of draft heads this "
            "version reads EAGLE-3, as its authors publish it (architecture LlamaForCausalLMEagle3) and as "
            "`speculators` writes it (speculators_model_type: eagle3)."
        )
    settings = {**config, **_layer_of_speculators(path, config)} if kind else config
    unread = [f"{key}: {settings[key]}" for key in ("attention_bias", "mlp_bias") if settings.get(key)]
    unread += [f"hidden_act: {act}" for act in [settings.get("hidden_act")] if act not in (None, "silu")]
    dims = settings.get("head_dim") or 0
    unread += [f"head_dim: {dims}"] if type(dims) is int and dims % 16 else []
    unread += [f"num_hidden_layers: {count}" for count in [settings.get("num_hidden_layers")] if count not in (None, 1)]
    if unread:
        raise NotInThisVersion(
            f"{path}: an EAGLE-3 head with `{unread[0]}`. This version reads heads of one layer without biases, with "
            "SiLU, and of a head_dim that is a multiple of 16."
        )
    if not (path / WEIGHTS).is_file():
        raise UsageError(
            f"{path} holds no {WEIGHTS}. A head that was published as pickles (pytorch_model.bin) is not opened: save "
            "it as safetensors first."
        )
    return settings


def _layer_of_speculators(path: Path, config: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return all keys of the layer's config, including those at transformers' defaults, which `speculators` leaves
    out."""
    layer: dict[str, Any] = layer_config if isinstance(layer_config := config.get(LAYER), dict) else {}
    kind = layer.get("model_type")
    if kind not in LAYERS:
        raise NotInThisVersion(
            f"{path}: an EAGLE-3 head whose `{LAYER}` has the model_type {kind!r}. This version reads "
            f"{' and '.join(LAYERS)}."
        )
    from transformers import LlamaConfig, Qwen3Config

    try:
        return (LlamaConfig if kind == "llama" else Qwen3Config)(**layer).to_dict()
    except Exception as error:  # whatever transformers does with values of a wrong kind
        raise UsageError(f"{path}: transformers does not read this head's `{LAYER}` ({one_line(error)}).") from None


def hash_of(path: Path, config: Mapping[str, Any]) -> str:
    """Return the sha256 over both files."""
    with (path / WEIGHTS).open("rb") as file:
        return content_hash([config, hashlib.file_digest(file, "sha256").hexdigest()])


def form_of(config: Mapping[str, Any]) -> Eagle3Form:
    """Return the options in a `published_config`. TypeError, ValueError for values of a wrong kind."""
    flags = {name: config.get(name) or False for name in NORMS}
    slides = (config.get("layer_types") or [""])[0] == "sliding_attention"
    window = config.get("sliding_window") if slides else 0
    if not all(type(flag) is bool for flag in flags.values()) or type(window) is not int or slides > window:
        raise ValueError("norms are true or false, and a window is a whole number from 1")
    ids = _tapped(config)
    return Eagle3Form(taps=len(ids) or 3, head_norms=config.get("model_type") == "qwen3", window=window, **flags)


def shape_said(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of `HeadShape` from the names of transformers. KeyError for a missing one."""
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
    """Return after how many layers of the target the head reads its residual stream. Three if the config names none."""
    ids = _tapped(config) or (2, layers // 2, layers - 3)
    if list(ids) != sorted(ids) or not all(0 < tap < layers for tap in ids):
        raise UsageError(
            f"This EAGLE-3 head reads the target behind its layers {', '.join(map(str, ids))}, and the target has "
            f"{layers}. It is another model's, or it reads embeddings, the last layer or another order, which this "
            "version does not."
        )
    return ids


def _tapped(config: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the layer ids in the config. At the top level they count layers (vLLM's key); within `eagle_config` they
    name a layer from 0 (SGLang's). ValueError unless all are whole numbers."""
    nested, top = (config.get("eagle_config") or {}).get(TAPS), config.get(TAPS)
    ids = tuple(top or nested or ())
    if not all(type(layer_id) is int for layer_id in ids):
        raise ValueError(f"`{TAPS}` lists whole numbers")
    return ids if top else tuple(layer_id + 1 for layer_id in ids)


def own_names(tensors: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Return the tensors by the names of `eagle3_tensors`."""
    return {
        name.removeprefix("model.").removeprefix("midlayer.").removeprefix("layers.0."): tensor
        for name, tensor in tensors.items()
    }


def turning(config: Mapping[str, Any]) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return a function from positions to their cosines and sines, as transformers computes them for such a config."""
    import torch
    from transformers import LlamaConfig
    from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

    size_keys = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "max_position_embeddings")
    rope = ("rope_theta", "rope_scaling", "rope_parameters")
    settings = {name: config[name] for name in (*size_keys, *rope) if config.get(name) is not None}
    rotary = LlamaRotaryEmbedding(LlamaConfig(**settings))

    def turned(positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        cosine, sine = rotary(torch.zeros(1), positions[None])
        return cosine[0].float(), sine[0].float()

    return turned


def _architectures(config: Mapping[str, Any]) -> list[str]:
    architectures = config.get("architectures")
    return [str(name) for name in architectures] if isinstance(architectures, list) else []
