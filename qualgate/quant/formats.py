"""Which quantized format a model folder holds, from its config files and headers alone. Needs no torch."""

from __future__ import annotations

import json
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.shards import TensorEntry, file_metadata, weight_files

METHODS = ("gptq", "awq", "compressed-tensors", "fp8", "mxfp4", "torchao", "bitsandbytes", "gguf")
# Known by name, so that the message need not guess.
_NOT_READ = (
    "aqlm", "auto-round", "intel/auto-round", "bitnet", "eetq", "fbgemm_fp8", "fp_quant", "higgs", "hqq", "metal",
    "modelopt", "nvfp4", "quanto", "quark", "sinq", "spqr", "vptq",
)  # fmt: skip
_AGAIN = "Fetch or save this model again."
# Endings of tensors that describe codes and hold no weights of their own.
_BESIDE_CODES = (
    ".scales", ".qzeros", ".g_idx", ".weight_scale", ".weight_scale_inv", ".weight_zero_point", ".weight_shape",
    ".weight_g_idx", ".weight_global_scale", ".input_global_scale", ".input_scale", ".input_zero_point",
    ".activation_scale", "_scales", "._weight_scale",
    "._weight_zero_point", "._weight_per_tensor_scale", "._weight_act_quant_scale", "._weight_act_quant_zero_point",
    "._weight_act_per_tensor_scale", ".SCB", ".weight_format", ".absmax", ".quant_map",
    ".nested_absmax", ".nested_quant_map",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What a folder says its quantized format is."""

    method: str  # one of METHODS
    settings: dict[str, Any]  # the quantization config as it stands, {} for GGUF
    where: Path  # the file that says so

    def setting(self, *names: str, kind: type, default: Any = None) -> Any:
        """The first of `names` that is set. Raises UsageError when it is of another type or missing without default."""
        for name in names:
            value = self.settings.get(name)
            if value is not None:
                if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                    raise UsageError(f"{self.where}: {name} is {value!r:.60}, expected {kind.__name__}. {_AGAIN}")
                return value
        if default is None:
            raise UsageError(f"{self.where} does not say {names[0]}, so {self.method} weights cannot be read. {_AGAIN}")
        return default


def recognise(folder: Path) -> Format | None:
    """The folder's quantized format; None for a full-precision model.

    Looked for in config.json, then in the files AutoGPTQ and AutoAWQ write beside it, then in the weights' own headers.
    Raises UsageError for an unknown quant_method, NotInThisVersion for a known one that is not read.
    """
    config = read_json(folder / "config.json")
    for key in ("quantization_config", "compression_config"):
        settings: Any = config.get(key)
        if settings is not None and not isinstance(settings, dict):
            raise UsageError(
                f"{folder / 'config.json'}: {key} is {type(settings).__name__}, expected a JSON object. {_AGAIN}"
            )
        if settings:
            return Format(
                method=_method(folder / "config.json", settings), settings=settings, where=folder / "config.json"
            )
    for name, method in (("quantize_config.json", "gptq"), ("quant_config.json", "awq")):
        settings = read_json(folder / name)
        if settings:
            settings = {"quant_method": method, **settings}
            return Format(method=_method(folder / name, settings), settings=settings, where=folder / name)
    files = weight_files(folder)
    if files[0].suffix == ".gguf":
        return Format(method="gguf", settings={}, where=files[0])
    metadata = file_metadata(folder)
    if metadata.get("gptq_bits", "").isdigit():
        settings = {
            "bits": int(metadata["gptq_bits"]),
            "group_size": _number(metadata.get("gptq_group_size", "-1")),
            "desc_act": metadata.get("gptq_desc_act") == "True",
            "is_marlin_format": metadata.get("gptq_is_marlin_format") == "True",
        }
        return Format(method="gptq", settings=settings, where=files[0])
    if any('"_type"' in text and '"_tensor_data_names"' in text for text in metadata.values()):
        return Format(method="torchao", settings={}, where=files[0])
    return None


def weights_in(name: str, entry: TensorEntry, format: Format) -> int:
    """How many weights of the model a tensor of a quantized checkpoint holds, as far as its header tells."""
    if name.endswith(_BESIDE_CODES) or ".quant_state." in name:
        return 0
    count = prod(entry.shape)
    if name.endswith((".qweight", ".weight_packed", "_blocks")) or (
        format.method == "bitsandbytes" and entry.dtype == "U8"
    ):
        bits = _bits(format) if entry.dtype == "I32" else 4
        return count * {"I32": 32}.get(entry.dtype, 8) // bits
    return count


def _bits(format: Format) -> int:
    """As the config says; the readers hold it against the shapes."""
    groups = format.settings.get("config_groups")
    if isinstance(groups, dict):
        for group in groups.values():
            weights = group.get("weights") if isinstance(group, dict) else None
            if isinstance(weights, dict) and type(weights.get("num_bits")) is int and weights["num_bits"] > 0:
                return weights["num_bits"]
    bits = format.settings.get("bits", format.settings.get("w_bit"))
    return bits if type(bits) is int and 1 <= bits <= 16 else 4


def _method(where: Path, settings: dict[str, Any]) -> str:
    method = settings.get("quant_method")
    if method is None:
        if "config_groups" in settings:  # compressed-tensors before it named itself
            return "compressed-tensors"
        if settings.get("load_in_4bit") or settings.get("load_in_8bit"):
            return "bitsandbytes"
        if "bits" in settings and "group_size" in settings:
            return "gptq"
        raise UsageError(
            f"{where} has a quantization config without quant_method, and nothing else in it tells the format. "
            f"Formats that are read: {', '.join(METHODS)}."
        )
    if method in METHODS and method != "gguf":
        return str(method)
    if method in _NOT_READ:
        raise NotInThisVersion(
            f"{where}: quant_method {method!r} is not read in this version. Formats that are: {', '.join(METHODS)}."
        )
    raise UsageError(f"{where}: unknown quant_method {str(method)!r:.60}. Formats that are read: {', '.join(METHODS)}.")


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1


def read_json(file: Path) -> dict[str, Any]:
    """A JSON object, {} when the file is not there. Raises UsageError when it holds anything else."""
    if not file.is_file():
        return {}
    try:
        value = json.loads(file.read_bytes())
    except ValueError as error:
        raise UsageError(f"{file} is not valid JSON ({error}). {_AGAIN}") from None
    except RecursionError:
        raise UsageError(f"{file} is nested too deeply to be a model's. {_AGAIN}") from None
    if not isinstance(value, dict):
        raise UsageError(f"{file} holds {type(value).__name__}, expected a JSON object. {_AGAIN}")
    return value
