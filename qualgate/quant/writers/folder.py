"""A whole model folder in another library's format, put there in one rename."""

from __future__ import annotations

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors import safe_open
from safetensors.torch import save_file

from qualgate.errors import UsageError
from qualgate.quant.checkpoint import PackedModel
from qualgate.quant.model_files import PROCESSOR_TEMPLATE_FILE, TEMPLATE_FILE, TOKENIZER_FILES, read_files
from qualgate.quant.recipes import layer_recipe
from qualgate.quant.shards import tensor_entries
from qualgate.quant.writers import awq, compressed_tensors, gptq
from qualgate.quant.writers.card import Provenance, model_card
from qualgate.records.identity import canonical_json

Format = Literal["gptq", "gptq_v2", "awq", "compressed-tensors"]
FORMATS: tuple[Format, ...] = ("gptq", "gptq_v2", "awq", "compressed-tensors")
SHARD_BYTES = 4 * 2**30
_HALF = ("gptq", "gptq_v2", "awq")  # their kernels compute in float16
_COPIED = (*TOKENIZER_FILES, TEMPLATE_FILE, PROCESSOR_TEMPLATE_FILE, "generation_config.json")


def float_dtype(format: Format, dtype: str) -> str:
    """What the floats of a folder in `format` are, for a model of `dtype`."""
    return "float16" if format in _HALF else dtype


def write_folder(
    model_folder: Path,
    packed: PackedModel,
    out: Path,
    format: Format,
    provenance: Provenance,
    *,
    more: Mapping[str, Any] | None = None,
    more_rows: Sequence[str] = (),
) -> tuple[Path, ...]:
    """Write `packed`, and what it leaves of `model_folder`, to `out`; returns the files.

    more: JSON files beside the weights, by name; more_rows: of the model card's table.

    config.json says the format; tokenizer, chat template and generation config are copied. Raises UsageError when
    `out` is there already, and naming the layer that the format cannot hold.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UsageError(f"{out} already exists. Give another folder, or remove this one.")
    activations: dict[str, str] = {
        name: recipe.activations for name in packed.weights if (recipe := layer_recipe(packed.recipe, name)) is not None
    }
    config = _quantization_config(model_folder, packed, format, provenance, activations)
    out.parent.mkdir(parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".{out.name}-", dir=out.parent))
    try:
        dtype = float_dtype(format, provenance.dtype)
        tensors = _tensors(model_folder, packed, format, getattr(torch, dtype), activations)
        _save(unfinished, tensors)
        settings = json.loads((model_folder / "config.json").read_bytes())
        settings.pop("torch_dtype", None)
        settings |= {"dtype": dtype, "quantization_config": config}
        _write_json(unfinished / "config.json", settings)
        if format in ("gptq", "gptq_v2"):
            _write_json(unfinished / "quantize_config.json", config)
        for name, raw in read_files(model_folder, _COPIED).raw.items():
            (unfinished / name).parent.mkdir(exist_ok=True)
            (unfinished / name).write_bytes(raw)
        for name, value in (more or {}).items():
            _write_json(unfinished / name, value)
        card = model_card(packed, provenance, format, more_rows)
        (unfinished / "README.md").write_text(card, encoding="utf-8")
        if out.is_dir():
            out.rmdir()  # empty
        os.chmod(unfinished, 0o755)  # mkdtemp's is for its owner alone
        os.rename(unfinished, out)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return tuple(sorted(out.iterdir()))


def _quantization_config(
    model_folder: Path, packed: PackedModel, format: Format, provenance: Provenance, activations: dict[str, str]
) -> dict[str, Any]:
    """Return what config.json says of the weights. UsageError for layers that the format cannot hold."""
    plain = _kept(model_folder, packed)
    rounded = sorted({name for name, precision in activations.items() if precision})
    if rounded and format != "compressed-tensors":
        raise UsageError(
            f"{rounded[0]} rounds its activations, which only the compressed-tensors format can hold. Use that one."
        )
    made_by = f"qualgate:{provenance.versions.get('qualgate', 'source')}"
    if format == "compressed-tensors":
        return compressed_tensors.config(packed.weights, plain, activations)
    if format == "awq":
        return awq.config(packed.weights, plain)
    return gptq.config(packed.weights, [name for name in plain if name != "lm_head"], v2=format == "gptq_v2",
                       made_by=made_by)  # fmt: skip


def _kept(model_folder: Path, packed: PackedModel) -> list[str]:
    """Linear layers that stay floats, by name: the head and what `keep` says."""
    from qualgate.quant.checkpoint import linear_names

    return ["lm_head", *(name for name in linear_names(model_folder) if name not in packed.weights)]


def _tensors(
    model_folder: Path, packed: PackedModel, format: Format, dtype: torch.dtype, activations: dict[str, str]
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield every tensor of the folder, one at a time, in the order of their names."""
    entries = tensor_entries(model_folder)
    quantized = {f"{name}.weight" for name in packed.weights}
    for name, entry in sorted(entries.items()):
        if name in quantized:
            continue
        if name in packed.folded:
            tensor = packed.folded[name]
        else:
            with safe_open(entry.file, framework="pt") as shard:
                tensor = shard.get_tensor(name)
        yield name, _as(name, tensor, dtype) if tensor.is_floating_point() else tensor
    for name, weight in sorted(packed.weights.items()):
        if format == "compressed-tensors":
            yield from compressed_tensors.tensors(name, weight, activations.get(name, "")).items()
        elif format == "awq":
            yield from awq.tensors(name, weight).items()
        else:
            yield from gptq.tensors(name, weight, v2=format == "gptq_v2").items()


def _as(name: str, tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    converted = tensor.to(dtype)
    if not converted.isfinite().all() and tensor.isfinite().all():
        raise UsageError(
            f"{name} holds {float(tensor.abs().max()):.3g}, more than float16 can hold. Write it as compressed-tensors."
        )
    return converted


def _save(folder: Path, tensors: Iterator[tuple[str, torch.Tensor]]) -> None:
    """`model.safetensors`, or shards of 4 GiB and their index."""
    shards: list[dict[str, torch.Tensor]] = [{}]
    names: list[tuple[str, int]] = []  # (tensor, shard)
    total = shard_bytes = 0

    def flush(number: int) -> None:
        save_file(shards[-1], folder / f"shard-{number}", metadata={"format": "pt"})
        shards[-1] = {}

    number = 0
    for name, tensor in tensors:
        if shard_bytes and shard_bytes + tensor.nbytes > SHARD_BYTES:
            flush(number)
            number, shard_bytes = number + 1, 0
        shards[-1][name] = tensor.detach().cpu().contiguous()
        names.append((name, number))
        shard_bytes, total = shard_bytes + tensor.nbytes, total + tensor.nbytes
    flush(number)
    if number == 0:
        (folder / "shard-0").rename(folder / "model.safetensors")
        return
    files = [f"model-{place + 1:05d}-of-{number + 1:05d}.safetensors" for place in range(number + 1)]
    for place, file in enumerate(files):
        (folder / f"shard-{place}").rename(folder / file)
    index = {"metadata": {"total_size": total}, "weight_map": {name: files[place] for name, place in names}}
    _write_json(folder / "model.safetensors.index.json", index)


def _write_json(file: Path, value: Any) -> None:
    canonical_json(value)  # no NaN
    file.write_text(json.dumps(value, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
