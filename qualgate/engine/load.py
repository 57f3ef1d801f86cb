"""From a model folder to an arm that can run.

Arithmetic is float32 on every device: the dtype of an arm says what its weights hold (they are rounded to it), not
how they are multiplied. On CPUs without bfloat16 units that is 5 times faster, and it keeps the noise of the
arithmetic far below the differences that quantization makes.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualgate.engine.identify import identify, read_json
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.shards import tensor_entries, weight_files, weights_hash
from qualgate.records import ArmFootprint, ArmIdentity, ArmSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["LoadedArm", "check_model", "identify", "load_arm", "parameter_count"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedArm:
    spec: ArmSpec
    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    identity: ArmIdentity
    footprint: ArmFootprint
    stop_ids: tuple[int, ...]  # every token that ends an answer


def check_model(folder: Path) -> None:
    """Raise UsageError when `folder` cannot be loaded as it stands. Reads headers only, without torch."""
    if not folder.is_dir():
        raise UsageError(
            f"Model folder {folder} does not exist. qualgate never downloads a model: give the path of a folder with "
            "config.json, tokenizer and safetensors."
        )
    if not (folder / "config.json").is_file():
        raise UsageError(f"{folder} has no config.json: expected a transformers model folder.")
    config = read_json(folder / "config.json")
    for file, settings in (
        ("config.json", config),
        ("tokenizer_config.json", read_json(folder / "tokenizer_config.json")),
    ):
        if "auto_map" in settings:
            raise UsageError(
                f"{folder / file} asks for the model's own Python code (auto_map), which qualgate does not run. If "
                "transformers knows this architecture, remove auto_map; else convert the model."
            )
    if not isinstance(config.get("model_type"), str):
        raise UsageError(f"{folder / 'config.json'} has no model_type, so its architecture is unknown.")
    if "quantization_config" in config:
        method = (config["quantization_config"] or {}).get("quant_method", "unknown")
        raise NotInThisVersion(
            f"{folder} is a quantized checkpoint ({method}); reading these is not in this version. Give the "
            "full-precision model, and the variant as `quantize:`."
        )
    tensor_entries(folder)
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")):
        raise UsageError(f"{folder} has no tokenizer: expected tokenizer.json. Save it there with save_pretrained.")


def parameter_count(folder: Path) -> int:
    """Numbers in the model's safetensors files, from their headers."""
    return sum(prod(entry.shape) for entry in tensor_entries(folder).values())


def load_arm(spec: ArmSpec, cache_dir: str | Path, sampling: dict[str, Any]) -> LoadedArm:
    """Load `spec`; a quantized arm's packed checkpoint is taken from `cache_dir`, or made there first.

    Raises UsageError for a model folder that cannot be used.
    """
    import torch

    from qualgate.engine.prompts import load_tokenizer

    folder = Path(spec.model)
    check_model(folder)
    identity = identify(spec, sampling)
    device = torch.device("cuda" if " cuda " in identity.engine and torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        identity = replace(identity, engine=identity.engine.replace(" cuda ", " cpu "))
    model = _load_model(folder, getattr(torch, spec.dtype))
    on_disk = sum(file.stat().st_size for file in weight_files(folder))
    quantized = 0
    if spec.quantize:
        from qualgate.quant.checkpoint import checkpoint_name, pack

        packed = Path(cache_dir) / checkpoint_name(weights_hash(folder), spec.quantize, spec.dtype)
        pack(folder, spec.quantize, packed, spec.dtype)
        replaced, quantized = _quantize(model, folder, packed)
        on_disk += (packed / "packed.safetensors").stat().st_size - replaced
    torch.nn.Module.to(model, device)
    held = {tensor.data_ptr(): tensor.nbytes for tensor in (*model.parameters(), *model.buffers())}
    tokenizer = load_tokenizer(folder)
    return LoadedArm(
        spec=spec,
        model=model,
        tokenizer=tokenizer,
        identity=identity,
        footprint=ArmFootprint(
            bytes_on_disk=on_disk,
            bytes_in_memory=sum(held.values()),
            quantized_bytes=quantized,
            effective_bits=8 * sum(held.values()) / parameter_count(folder),
        ),
        stop_ids=_stop_ids(model, tokenizer),
    )


def _load_model(folder: Path, dtype: Any) -> PreTrainedModel:
    """The model in eval mode, in float32, its weights rounded to `dtype`."""
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=torch.float32,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
    except (ValueError, KeyError, OSError, RuntimeError) as error:
        raise UsageError(f"transformers cannot load {folder}: {error}") from error
    model, report = loaded
    missing = sorted(report["missing_keys"])
    if missing:
        raise UsageError(
            f"{folder} lacks {len(missing)} tensors that its architecture needs, among them {missing[0]}. "
            "Fetch or save this checkpoint again."
        )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(parameter.to(dtype))
    return model.eval().requires_grad_(False)


def _quantize(model: PreTrainedModel, folder: Path, packed: Path) -> tuple[int, int]:
    """Put the packed weights in place of the float ones; returns (source bytes they replace on disk, packed bytes)."""
    from qualgate.quant.checkpoint import read_packed
    from qualgate.quant.linear import QuantizedLinear

    entries = tensor_entries(folder)
    replaced = quantized = 0
    for name, weight in read_packed(packed).items():
        parent = model.get_submodule(name.rpartition(".")[0])
        attribute = name.rpartition(".")[2]
        setattr(parent, attribute, QuantizedLinear(weight, getattr(parent, attribute).bias))
        replaced += entries[f"{name}.weight"].nbytes
        quantized += weight.nbytes
    return replaced, quantized


def _stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> tuple[int, ...]:
    """Every end-of-turn token that generation config, config or tokenizer names."""
    found: set[int] = set()
    sources = (model.generation_config, model.config.get_text_config(decoder=True), tokenizer)
    for value in (getattr(source, "eos_token_id", None) for source in sources):
        found.update(value if isinstance(value, list | tuple) else [] if value is None else [value])
    return tuple(sorted(found))
