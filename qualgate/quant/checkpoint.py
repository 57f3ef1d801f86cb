"""Packed checkpoints: made once from the baseline's safetensors, reloaded with the same bits.

A folder holds `packed.safetensors` (for each quantized tensor NAME: NAME.codes, NAME.scales and what else its
PackedWeight has; folded.NAME for floats that calibration changed) and `manifest.json` (recipe, dtype and sha256 of the
source, each weight's layout, sha256 of packed.safetensors, and a digest of all this). It appears in one rename, so a
reader never sees half of it and two workers that make it at once do no harm.
"""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.calibrate import Progress, calibrate
from qualgate.quant.layers import fused_with
from qualgate.quant.layouts import layouts_of, tensors_of, weights_of
from qualgate.quant.packing import quantize_weight
from qualgate.quant.recipes import FLOATS, layer_recipe
from qualgate.quant.shapes import check_keeps, in_a_layer, not_quantizable
from qualgate.quant.shards import TensorEntry, read_header, tensor_entries, weights_hash
from qualgate.quant.stability import WeightStability, weight_stability
from qualgate.records import QuantizeRecipe
from qualgate.records.identity import canonical_json, content_hash, file_hash
from qualgate_kernels.packed import PackedWeight

if TYPE_CHECKING:
    from transformers import PreTrainedModel

_FORMAT = 3
Dtype = Literal["bfloat16", "float16", "float32"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedModel:
    """What a packed checkpoint holds. Everything else is the baseline's."""

    recipe: QuantizeRecipe  # without the place of its calibration
    weights: dict[str, PackedWeight]  # by module
    folded: dict[str, torch.Tensor]  # float tensors that calibration changed, by tensor
    errors: dict[str, float]  # by module, calibrated recipes: mean square error of the output, relative
    stability: dict[str, WeightStability] = field(default_factory=dict)  # by module


def checkpoint_name(source_sha256: str, recipe: QuantizeRecipe, dtype: str) -> str:
    """The folder's name in a cache: equal for equal weights, recipe, dtype and layout, whatever the model is called."""
    key = content_hash([_FORMAT, source_sha256, recipe.content, dtype])
    return f"{recipe.label.replace(' ', '-')}-{key[:16]}"


def pack(
    model_folder: Path,
    recipe: QuantizeRecipe,
    out_folder: Path,
    dtype: str = "bfloat16",
    *,
    prompts: Callable[[], Sequence[Sequence[int]]] | None = None,
    scale_dtype: torch.dtype = torch.bfloat16,
    device: str = "cpu",
    progress: Progress = lambda what, done, total: None,
) -> Path:
    """Quantize every linear layer of `model_folder`'s decoder by `recipe` into `out_folder`; returns that folder.

    The weights are rounded to `dtype` first: a variant is made from the baseline as it is judged. Without calibration
    one tensor at a time is in memory unpacked; with it the model is, and `prompts` gives the calibration's token ids.
    Layers that calibration has finished lie beside `out_folder` until it is there: after an interruption it goes on.
    An `out_folder` that is already there is left as it is.
    """
    if out_folder.is_dir():
        return out_folder
    names = linear_names(model_folder)
    _check_kept(model_folder, recipe, names, dtype)
    entries = tensor_entries(model_folder)
    for name in names:
        if f"{name}.weight" not in entries:
            raise UsageError(f"{model_folder}: the config asks for {name}.weight, which no safetensors file holds.")
    unfinished_layers = out_folder.parent / f".{out_folder.name}.layers"
    weights: dict[str, PackedWeight] = {}
    folded: dict[str, torch.Tensor] = {}
    errors: dict[str, float] = {}
    stability: dict[str, WeightStability] = {}
    if recipe.calibration_sha256:
        if prompts is None:
            raise UsageError(f"{recipe.label} needs calibration data, but no prompts were given.")
        model = float_model(model_folder, dtype, device)
        for finished in calibrate(
            model, recipe, prompts(), dtype=getattr(torch, dtype), scale_dtype=scale_dtype, folder=unfinished_layers,
            progress=progress,
        ):  # fmt: skip
            weights |= finished.weights
            folded |= finished.folded
            errors |= finished.errors
            stability |= finished.stability
        del model
    else:
        for name, packed, steady in _cast(entries, recipe, names, getattr(torch, dtype), scale_dtype, device, progress):
            weights[name], stability[name] = packed, steady
    manifest = {
        "format": _FORMAT,
        "recipe": recipe.content,
        "source": {"sha256": weights_hash(model_folder), "dtype": dtype},
        "weights": layouts_of(weights),
        "errors": errors,
        "stability": {name: asdict(stable) for name, stable in stability.items()},
    }
    _write(out_folder, tensors_of(weights, folded), manifest)
    shutil.rmtree(unfinished_layers, ignore_errors=True)
    return out_folder


def read_packed(folder: Path) -> PackedModel:
    """Return the checkpoint in `folder`. Raises UsageError when the folder is not what its manifest says."""
    file = folder / "packed.safetensors"
    again = f"Delete {folder}: it is made again from the baseline."
    try:
        manifest = json.loads((folder / "manifest.json").read_bytes())
        read_header(file)
        if manifest.pop("digest") != content_hash(manifest):
            raise UsageError(f"{folder / 'manifest.json'} has changed since it was made. {again}")
        if file_hash(file) != manifest["sha256"]:
            raise UsageError(f"{file} has changed since it was made. {again}")
        with safe_open(file, framework="pt") as stored:
            tensors = {name: stored.get_tensor(name) for name in stored.keys()}  # noqa: SIM118 (no mapping)
        weights, folded = weights_of(tensors, manifest["weights"])
        recipe = QuantizeRecipe(**manifest["recipe"])
        return PackedModel(
            recipe=recipe,
            weights=weights,
            folded=folded,
            errors=manifest["errors"],
            stability={name: WeightStability(**fields) for name, fields in manifest.get("stability", {}).items()},
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise UsageError(f"{folder} is not a whole packed checkpoint ({error}). {again}") from None


def _cast(
    entries: dict[str, TensorEntry],
    recipe: QuantizeRecipe,
    names: list[str],
    dtype: torch.dtype,
    scale_dtype: torch.dtype,
    device: str,
    progress: Progress,
) -> Iterator[tuple[str, PackedWeight, WeightStability]]:
    """Yield every weight, quantized by itself and without data. progress: called before each weight."""

    def read(name: str) -> torch.Tensor:
        with safe_open(entries[f"{name}.weight"].file, framework="pt") as shard:
            return shard.get_tensor(f"{name}.weight").to(dtype).to(device).float()

    for done, name in enumerate(names):
        progress(name, done, len(names))
        own_recipe = layer_recipe(recipe, name)
        if own_recipe is None:
            continue
        absmax = None
        if own_recipe.method == "nvfp4":
            together = [sibling for sibling in fused_with(name) if sibling in names]
            absmax = torch.stack([read(sibling).abs().amax() for sibling in together]).amax()
        weight = read(name)
        packed = quantize_weight(
            weight, own_recipe, f"{name}.weight", dtype=dtype, scale_dtype=scale_dtype, absmax=absmax
        )
        yield name, packed, weight_stability(weight, packed)
    progress("", len(names), len(names))


def _check_kept(model_folder: Path, recipe: QuantizeRecipe, names: list[str], dtype: str) -> None:
    """Raise UsageError for a `keep` that names another float dtype than the variant's, or that keeps every layer."""
    check_keeps(model_folder, recipe, names)
    for pattern, precision in recipe.keep:
        if FLOATS.get(precision, dtype) != dtype:
            raise UsageError(
                f"quantize: `keep` {pattern}: {precision}, but a float layer keeps the baseline's dtype, {dtype}. "
                f"Write {dtype}, or give the baseline another `dtype`."
            )
    if all(layer_recipe(recipe, name) is None for name in names):
        raise UsageError("quantize: `keep` leaves no layer to quantize: the variant would be the baseline.")


def float_model(folder: Path, dtype: str, device: str) -> PreTrainedModel:
    """Return the model in float32 on `device`, its weights rounded to `dtype`."""
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    model: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, local_files_only=True, trust_remote_code=False, use_safetensors=True
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(getattr(torch, dtype)))
    return model.eval().requires_grad_(False).to(device)


def _write(out_folder: Path, tensors: dict[str, torch.Tensor], manifest: dict[str, Any]) -> None:
    """Write the packed checkpoint in one rename. If another worker was faster, its folder stays: it holds the same
    bits."""
    out_folder.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{out_folder.name}-", dir=out_folder.parent))
    try:
        save_file(tensors, unfinished / "packed.safetensors")
        manifest = {**manifest, "sha256": file_hash(unfinished / "packed.safetensors")}
        manifest = {**manifest, "digest": content_hash(manifest)}
        (unfinished / "manifest.json").write_text(canonical_json(manifest), encoding="utf-8")
        try:
            os.rename(unfinished, out_folder)
        except OSError:
            if not out_folder.is_dir():  # else another worker was faster, with the same bits
                raise
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)


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
