"""From a model folder to an arm that can run.

Arithmetic is float32 on every device: the dtype of an arm says what its weights hold (they are rounded to it), not
how they are multiplied. On CPUs without bfloat16 units that is 5 times faster, and it keeps the noise of the
arithmetic far below the differences that quantization makes.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

from qualgate.engine.identify import Device, choose_device, identify, read_json, readable, stop_ids
from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.shapes import check_fits
from qualgate.quant.shards import tensor_entries, weight_files, weights_hash
from qualgate.records import ArmFootprint, ArmIdentity, ArmSpec

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

__all__ = ["LoadedArm", "check_fits", "check_model", "choose_device", "identify", "load_arm", "parameter_count"]


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
    with readable(folder):
        _check_model(folder)


def _check_model(folder: Path) -> None:
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
    for key in ("quantization_config", "text_config"):
        if not isinstance(config.get(key) or {}, dict):
            raise UsageError(
                f"{folder / 'config.json'}: {key} is {type(config[key]).__name__}, expected a JSON object. Fetch or "
                "save this model again."
            )
    if "quantization_config" in config:
        method = (config["quantization_config"] or {}).get("quant_method", "unknown")
        raise NotInThisVersion(
            f"{folder} is a quantized checkpoint ({method}); reading these is not in this version. Give the "
            "full-precision model, and the variant as `quantize:`."
        )
    tensor_entries(folder)
    if not any((folder / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json", "vocab.txt")):
        raise UsageError(f"{folder} has no tokenizer: expected tokenizer.json. Save it there with save_pretrained.")


def vocabulary(folder: Path) -> int | None:
    """Rows of the output head, from the headers, else what the config says; None when neither tells."""
    head = tensor_entries(folder).get("lm_head.weight")
    if head is not None and head.shape:
        return head.shape[0]
    config = read_json(folder / "config.json")
    size = (config.get("text_config") or config).get("vocab_size")
    return size if type(size) is int else None


def one_line(error: BaseException) -> str:
    """`TypeName: message`, without line breaks: a reason among others."""
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


def parameter_count(folder: Path) -> int:
    """Numbers in the model's safetensors files, from their headers."""
    return sum(prod(entry.shape) for entry in tensor_entries(folder).values())


def load_arm(spec: ArmSpec, cache_dir: str | Path, sampling: dict[str, Any], *, device: Device) -> LoadedArm:
    """Load `spec` on `device`; a quantized arm's packed checkpoint is taken from `cache_dir`, or made there first.

    Raises UsageError for a model folder that cannot be used, and for a device that torch cannot use.
    """
    import torch

    from qualgate.engine.prompts import load_tokenizer

    folder = Path(spec.model)
    check_model(folder)
    if device == "cuda" and not torch.cuda.is_available():
        raise UsageError(
            "This machine has a GPU that torch cannot use. Write `workers: {devices: cpu}` in the gate file, or mend "
            "the driver: `python -c 'import torch; torch.cuda.init()'` says what is wrong."
        )
    identity = identify(spec, sampling, device)
    model = _load_model(folder, getattr(torch, spec.dtype))
    on_disk = sum(file.stat().st_size for file in weight_files(folder))
    quantized = 0
    if spec.quantize:
        from qualgate.quant.checkpoint import checkpoint_name, pack

        packed = Path(cache_dir) / checkpoint_name(weights_hash(folder), spec.quantize, spec.dtype)
        pack(folder, spec.quantize, packed, spec.dtype)
        replaced, quantized = _quantize(model, folder, packed)
        on_disk += (packed / "packed.safetensors").stat().st_size - replaced
    torch.nn.Module.to(model, torch.device(device))
    held = {tensor.data_ptr(): tensor.nbytes for tensor in (*model.parameters(), *model.buffers())}
    return LoadedArm(
        spec=spec,
        model=model,
        tokenizer=load_tokenizer(folder),
        identity=identity,
        footprint=ArmFootprint(
            bytes_on_disk=on_disk,
            bytes_in_memory=sum(held.values()),
            quantized_bytes=quantized,
            effective_bits=8 * sum(held.values()) / parameter_count(folder),
        ),
        stop_ids=stop_ids(folder),  # from the files alone, so that they are those of the identity
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
    except MemoryError:
        raise
    except Exception as error:  # whatever a config can make an architecture's constructor do
        raise UsageError(f"transformers cannot load {folder}: {one_line(error)}") from error
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
