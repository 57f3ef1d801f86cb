"""Read the weights of an arm's model: as its files have them, packed, or quantized by the arm's recipe."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualgate.engine.device import Device
from qualgate.errors import NotInThisVersion, UsageError, one_line
from qualgate.quant.adapter_folder import AdapterFolder
from qualgate.quant.agreement.config_keys import check_config_keys
from qualgate.quant.full_precision import check_floats
from qualgate.quant.model_folder import ModelFolder
from qualgate.quant.shards import Shards
from qualgate.records import ArmSpec
from qualgate.text.numbers import counted

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from qualgate.quant.stability import WeightStability


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadModel:
    """A model as stored, or packed. on_disk, quantized: bytes of its files and of its packed weights; weights: count of
    its numbers; beside: of an adapter still to be added; see `footprint` for the others."""

    model: PreTrainedModel
    on_disk: int
    quantized: int
    weights: int
    beside: int
    left_out: dict[str, int]
    stability: dict[str, WeightStability]


def read_model(
    spec: ArmSpec, folder: ModelFolder, adapter: AdapterFolder | None, cache_dir: Path, device: Device
) -> ReadModel:
    """Read the model's weights, merge an adapter, and quantize by the arm's recipe, in this order.

    cache_dir: where the packed checkpoint of a recipe is kept.
    """
    import torch

    from qualgate.engine.overflow import check_weights_fit

    check_config_keys(folder.format, spec.allow_config)
    dtype, on_disk, quantized, weights = getattr(torch, spec.dtype), folder.shards.nbytes, 0, folder.parameters
    stability: dict[str, WeightStability] = {}
    if folder.format is not None:
        from qualgate.engine.quantized import load_quantized

        checkpoint = load_quantized(folder, dtype)
        model, quantized, weights = checkpoint.model, checkpoint.packed_bytes, checkpoint.weights
        left_out = checkpoint.left_out
        refuse_packed_head(spec, model)
    else:
        model, left_out = _load_model(folder, dtype)
    if spec.adapter is not None and adapter is not None:
        from qualgate.engine.adapters import check_adapter, merge

        check_adapter(adapter, model, merged=spec.adapter.merged)
        if spec.adapter.merged:
            merge(model, adapter, dtype)
    check_weights_fit(f"{spec.name}: {folder.path}", model, spec.dtype)
    if recipe := spec.quantize:
        from qualgate.engine.calibration import calibration_prompts
        from qualgate.quant.checkpoint import checkpoint_name, pack

        path, packed = folder.path, cache_dir / checkpoint_name(folder.shards.sha256, recipe, spec.dtype)
        pack(path, recipe, packed, spec.dtype, prompts=lambda: calibration_prompts(path, recipe), device=device)
        replaced, quantized, stability = _quantize(model, folder.shards, packed)
        on_disk += (packed / "packed.safetensors").stat().st_size - replaced
    return ReadModel(
        model=model,
        on_disk=on_disk,
        quantized=quantized,
        weights=weights,
        beside=adapter.numbers if adapter and spec.adapter and not spec.adapter.merged else 0,
        left_out=left_out,
        stability=stability,
    )


def refuse_packed_head(spec: ArmSpec, model: PreTrainedModel) -> None:
    """Raise NotInThisVersion for a baseline whose output head is quantized."""
    head = model.get_output_embeddings()
    if spec.is_baseline and head is not None and next(head.parameters(), None) is None:
        raise NotInThisVersion(
            f"{spec.model}: its output head is quantized, and a baseline's must be a float: drift is measured with it."
        )


def _load_model(folder: ModelFolder, dtype: Any) -> tuple[PreTrainedModel, dict[str, int]]:
    """Return the model in eval mode with its weights rounded to `dtype`, and what was left out of its files.

    It is in float32, but linear layers and embeddings of a plain decoder stay in `dtype` (see `engine.dense`): all of
    it in float32 would take twice its file's size.
    """
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    from qualgate.engine.plain_decoder import PLAIN
    from qualgate.engine.quantized import plain_config, tied_head
    from qualgate.engine.unexpected import known_to_be_unused, left_out_of

    logging.disable_progress_bar()
    logging.set_verbosity_error()  # what is missing is said below, in our words
    narrow = folder.files.config.get("model_type") in PLAIN
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder.path,
            config=plain_config(folder.path),
            dtype=dtype if narrow else torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
            ignore_mismatched_sizes=True,  # refused below, by name
        )
    except MemoryError:
        raise
    except Exception as error:  # whatever a config can make an architecture's constructor do
        raise UsageError(f"transformers cannot load {folder.path}: {one_line(error)}") from error
    model, report = loaded
    mismatched = sorted(report["mismatched_keys"])
    if mismatched:
        name, file_shape, expected_shape = mismatched[0]
        raise UsageError(
            f"{folder.path}: {name} holds {' x '.join(map(str, file_shape))} numbers, but its architecture has "
            f"{' x '.join(map(str, expected_shape))}. config.json and the weights belong to different models. Fetch "
            "this checkpoint again."
        )
    missing = sorted(report["missing_keys"])
    if missing:
        raise UsageError(
            f"{folder.path} lacks {counted(len(missing), 'tensor')} that its architecture needs, among them "
            f"{missing[0]}. Fetch or save this checkpoint again."
        )
    check_floats(folder.shards, (name for name, _ in model.named_buffers()), known_to_be_unused(folder, model))
    if tied_head(folder) == "embedding":
        model.get_output_embeddings().weight = model.get_input_embeddings().weight
    left_out = left_out_of(folder, model, report["unexpected_keys"])
    narrow_weights = {
        id(module.weight)
        for module in model.modules()
        if narrow and type(module) in (torch.nn.Linear, torch.nn.Embedding)
    }
    for parameter in model.parameters():
        if id(parameter) not in narrow_weights:
            parameter.data = parameter.data.to(dtype).float()
    return model.eval().requires_grad_(False), left_out


def _quantize(model: PreTrainedModel, shards: Shards, packed: Path) -> tuple[int, int, dict[str, WeightStability]]:
    """Replace float weights by the packed ones. Return the source bytes that they replace on disk, the packed bytes,
    and each layer's stability."""
    from qualgate.quant.calibrate import install
    from qualgate.quant.checkpoint import read_packed

    checkpoint = read_packed(packed)
    install(model, checkpoint.recipe, checkpoint.weights, checkpoint.folded)
    replaced = sum(shards.entries[f"{name}.weight"].nbytes for name in checkpoint.weights)
    return replaced, sum(weight.nbytes for weight in checkpoint.weights.values()), checkpoint.stability
