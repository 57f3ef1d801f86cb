"""Packed checkpoints: made once from the baseline's safetensors, reloaded with the same bits.

A folder holds `packed.safetensors` (for each quantized tensor NAME: NAME.codes, NAME.scales and what else its
PackedWeight has) and `manifest.json` (recipe, dtype and sha256 of the source, each weight's layout, sha256 of
packed.safetensors). It appears in one rename, so a reader never sees half of it and two workers that make it at once
do no harm.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.identity import canonical_json, content_hash, file_hash
from qualgate.quant.packing import quantize_weight
from qualgate.quant.shapes import in_a_layer, not_quantizable
from qualgate.quant.shards import read_header, tensor_entries, weights_hash
from qualgate.records import QuantizeRecipe
from qualgate_kernels.packed import TENSORS, PackedWeight

_FORMAT = 2
_LAYOUT = tuple(field.name for field in fields(PackedWeight) if field.name not in TENSORS)


def checkpoint_name(source_sha256: str, recipe: QuantizeRecipe, dtype: str) -> str:
    """The folder's name in a cache: equal for equal weights, recipe, dtype and layout, whatever the model is called."""
    key = content_hash([_FORMAT, source_sha256, asdict(recipe), dtype])
    return f"{recipe.label.replace(' ', '-')}-{key[:16]}"


def pack(model_folder: Path, recipe: QuantizeRecipe, out_folder: Path, dtype: str = "bfloat16") -> Path:
    """Quantize every linear layer of `model_folder`'s decoder by `recipe` into `out_folder`; returns that folder.

    The weights are rounded to `dtype` first: a variant is made from the baseline as it is judged. One tensor at a time
    is in memory unpacked. An `out_folder` that is already there is left as it is.
    """
    if out_folder.is_dir():
        return out_folder
    entries = tensor_entries(model_folder)
    tensors: dict[str, torch.Tensor] = {}
    layouts: dict[str, dict[str, Any]] = {}
    for name in linear_names(model_folder):
        tensor = f"{name}.weight"
        if tensor not in entries:
            raise UsageError(f"{model_folder}: the config asks for {tensor}, which no safetensors file holds.")
        with safe_open(entries[tensor].file, framework="pt") as shard:
            weight = shard.get_tensor(tensor).to(getattr(torch, dtype)).float()
        packed = quantize_weight(weight, recipe, tensor)
        tensors |= {f"{name}.{part}": tensor for part, tensor in packed.tensors.items()}
        layouts[name] = {part: getattr(packed, part) for part in _LAYOUT}
    out_folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{out_folder.name}-", dir=out_folder.parent))
    try:
        save_file(tensors, unfinished / "packed.safetensors")
        manifest = {
            "format": _FORMAT,
            "recipe": asdict(recipe),
            "source": {"sha256": weights_hash(model_folder), "dtype": dtype},
            "weights": layouts,
            "sha256": file_hash(unfinished / "packed.safetensors"),
        }
        (unfinished / "manifest.json").write_text(canonical_json(manifest), encoding="utf-8")
        try:
            os.rename(unfinished, out_folder)
        except OSError:
            if not out_folder.is_dir():  # else another worker was faster, with the same bits
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return out_folder


def read_packed(folder: Path) -> dict[str, PackedWeight]:
    """Module name → its packed weight. Raises UsageError when the folder is not what its manifest says."""
    file = folder / "packed.safetensors"
    again = f"Delete {folder}: it is made again from the baseline."
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        read_header(file)
        if file_hash(file) != manifest["sha256"]:
            raise UsageError(f"{file} has changed since it was made. {again}")
        with safe_open(file, framework="pt") as tensors:
            stored = set(tensors.keys())
            return {
                name: PackedWeight(
                    **{**layout, "shape": tuple(layout["shape"])},
                    **{part: tensors.get_tensor(f"{name}.{part}") for part in TENSORS if f"{name}.{part}" in stored},
                )
                for name, layout in manifest["weights"].items()
            }
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder} is not a whole packed checkpoint ({error}). {again}") from None


def linear_names(model_folder: Path) -> list[str]:
    """Names of the linear layers inside the decoder's layers: not the embeddings, not the output head.

    Read from the architecture itself, built without storage. Raises NotInThisVersion when it has none, and when a
    layer holds other matrices (GPT-2 keeps its weights transposed, mixtures of experts theirs in three dimensions).
    """
    from transformers import AutoConfig, AutoModelForCausalLM

    config = AutoConfig.from_pretrained(model_folder, local_files_only=True, trust_remote_code=False)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    head = model.get_output_embeddings()
    names = [
        name
        for name, module in model.named_modules()
        if type(module) is nn.Linear and module is not head and in_a_layer(name)
    ]
    if not names:
        raise NotInThisVersion(
            f"{model_folder}: {type(model).__name__} has no linear layers that can be quantized yet."
        )
    listed = {f"{name}.weight" for name in names}
    for name, parameter in model.named_parameters():
        if parameter.dim() >= 2 and in_a_layer(name) and name not in listed:
            raise not_quantizable(model_folder, name, tuple(parameter.shape))
    return names
