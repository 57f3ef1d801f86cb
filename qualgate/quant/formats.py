"""Which quantized format a model folder holds, from its config files and headers alone. Needs no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.agreement.two_configs import check_configs_agree, check_not_nested
from qualgate.quant.model_files import AGAIN, CONFIG_FILES, QUANTIZE_FILES, ModelFiles, read_files
from qualgate.quant.shards import Shards, TensorEntry, read_shards

METHODS = (
    "gptq", "awq", "auto-round", "compressed-tensors", "fp8", "fbgemm_fp8", "modelopt", "mxfp4", "torchao",
    "bitsandbytes", "gguf",
)  # fmt: skip
_DEQUANTIZED = "Dequantize it with its own library, save the model in full precision, and give that folder"
_AGAIN_AS_GPTQ = "Quantize the model again as GPTQ or compressed-tensors"
_AGAIN_AS_FP4 = "Quantize the model again with llm-compressor as NVFP4 or MXFP4"
# Formats that are known and not read: what each is, and what to do with it.
_NOT_READ = {
    "aqlm": ("AQLM, codebooks of its own", _DEQUANTIZED),
    "bitnet": ("BitNet's ternary weights", "Give the bfloat16 weights that it was packed from"),
    "eetq": ("EETQ's int8 weights", _AGAIN_AS_GPTQ),
    "fouroversix": ("Four Over Six, NVFP4 with two scales to choose from", _AGAIN_AS_FP4),
    "fp_quant": ("FP-Quant, MXFP4 or NVFP4 behind Hadamard rotations", _AGAIN_AS_FP4),
    "gemma": ("Gemma's integers with fixed inputs", "Give the QAT weights in bfloat16 that it was packed from"),
    "higgs": ("HIGGS, grids of its own", "Call `model.dequantize()` of transformers, save the model, and give that"),
    "hqq": ("HQQ, integers with zero points that are no whole numbers", _DEQUANTIZED),
    "metal": ("transformers' affine weights for Apple's machines", _AGAIN_AS_GPTQ),
    "mxfp8": ("MXFP8 of transformers", "Quantize the model again with llm-compressor as MXFP8"),
    "nvfp4": ("NVFP4 of transformers", _AGAIN_AS_FP4),
    "quanto": ("optimum-quanto", _AGAIN_AS_GPTQ),
    "quark": ("AMD Quark", 'Export it from Quark with custom_mode="awq" or "fp8"'),
    "sinq": ("SINQ, integers with a scale for rows and one for columns", _DEQUANTIZED),
    "spqr": ("SpQR, integers beside sparse outliers", _DEQUANTIZED),
    "vptq": ("VPTQ, codebooks of its own", _DEQUANTIZED),
}  # fmt: skip
# Endings of tensors that describe codes and hold no weights of their own.
_BESIDE_CODES = (
    ".scales", ".qzeros", ".g_idx", ".weight_scale", ".weight_scale_inv", ".weight_scale_2", ".weight_zero_point",
    ".weight_shape", ".weight_g_idx", ".weight_global_scale", ".input_global_scale", ".input_scale",
    ".input_zero_point", ".activation_scale", "_scales", "._weight_scale", "._weight_zero_point",
    "._weight_per_tensor_scale", "._weight_act_quant_scale", "._weight_act_quant_zero_point",
    "._weight_act_per_tensor_scale", ".SCB", ".weight_format", ".absmax", ".quant_map", ".nested_absmax",
    ".nested_quant_map", ".bitmask", ".shape",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """What a folder says its quantized format is."""

    method: str  # one of METHODS
    settings: dict[str, Any]  # the quantization config as it stands, {} for GGUF
    where: Path  # the file that says so

    def setting(self, *names: str, kind: type, default: Any = None) -> Any:
        """Return the first of `names` that is set. Raises UsageError when it is of another type or missing without
        default."""
        for name in names:
            value = self.settings.get(name)
            if value is not None:
                if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
                    raise UsageError(f"{self.where}: {name} is {value!r:.60}, expected {kind.__name__}. {AGAIN}")
                return value
        if default is None:
            raise UsageError(f"{self.where} does not say {names[0]}, so {self.method} weights cannot be read. {AGAIN}")
        return default


def recognise(folder: Path) -> Format | None:
    """Return the folder's quantized format; None for a full-precision model.

    Looked for in the config files, then in the weights' own headers. Raises UsageError for an unknown quant_method,
    NotInThisVersion for a known one that is not read.
    """
    files = read_files(folder, CONFIG_FILES)
    return said_by_config(files) or said_by_headers(read_shards(folder))


def said_by_config(files: ModelFiles) -> Format | None:
    """Return the quantized format that config.json names, or a file that AutoGPTQ, AutoAWQ and ModelOpt write beside
    it.

    Raises UsageError for an unknown quant_method, NotInThisVersion for a known one that is not read.
    """
    formats = list(_said(files))
    check_configs_agree([(format.where, format.settings) for format in formats])
    if not formats:
        check_not_nested(files.path / "config.json", files.config)
    return formats[0] if formats else None


def _said(files: ModelFiles) -> Iterator[Format]:
    """Yield every format that the folder's configs name, that of config.json first."""
    where, named = files.path / "config.json", False
    for key in ("quantization_config", "compression_config"):
        settings: Any = files.config.get(key)
        if settings is not None and not isinstance(settings, dict):
            raise UsageError(f"{where}: {key} is {type(settings).__name__}, expected a JSON object. {AGAIN}")
        if settings and settings == files.config.get("quantization"):  # mlx-lm writes it under both names
            raise _of_mlx(where)
        if settings and not _of_the_cache_alone(settings):
            named, method = True, _method(where, settings)
            if key == "quantization_config" and settings.get("quant_method") is None and method != "bitsandbytes":
                raise UsageError(
                    f"{where} has a quantization config without quant_method: transformers refuses it, and vLLM takes "
                    f'the weights for plain ones. Add `"quant_method": "{method}"` there.'
                )
            yield Format(method=method, settings=settings, where=where)
    if not named and isinstance(of_mlx := files.config.get("quantization"), dict) and "bits" in of_mlx:
        raise _of_mlx(where)
    for name, method in zip(QUANTIZE_FILES, ("gptq", "awq", "modelopt"), strict=True):
        settings = files.json(name)
        if method == "modelopt":  # of a quantized cache alone, the weights are what they were
            settings = _modelopt(files.path / name, settings)
        if settings:
            settings = {"quant_method": method, **settings}
            yield Format(method=_method(files.path / name, settings), settings=settings, where=files.path / name)


def said_by_headers(shards: Shards) -> Format | None:
    """Return the quantized format that the weights' own headers tell, where no config names one."""
    file, metadata = shards.files[0], shards.metadata
    if metadata.get("format") == "mlx" and any(entry.dtype == "U32" for entry in shards.entries.values()):
        raise _of_mlx(file)
    if any(name.endswith(".weight._data") for name in shards.entries):
        raise _not_read(file, "quanto")
    if file.suffix == ".gguf":
        return Format(method="gguf", settings={}, where=file)
    if metadata.get("gptq_bits", "").isdigit():
        settings = {
            "bits": int(metadata["gptq_bits"]),
            "group_size": _number(metadata.get("gptq_group_size", "-1")),
            "desc_act": metadata.get("gptq_desc_act") == "True",
            "is_marlin_format": metadata.get("gptq_is_marlin_format") == "True",
        }
        return Format(method="gptq", settings=settings, where=file)
    if any('"_type"' in text and '"_tensor_data_names"' in text for text in metadata.values()):
        return Format(method="torchao", settings={}, where=file)
    return None


def weights_in(name: str, entry: TensorEntry, format: Format) -> int:
    """Return how many weights of the model a tensor of a quantized checkpoint holds, as far as its header tells."""
    if name.endswith(_BESIDE_CODES) or ".quant_state." in name:
        return 0
    count = prod(entry.shape) * (2 if name.endswith(".compressed") else 1)
    if name.endswith((".qweight", ".weight_packed", "_blocks")) or (
        format.method in ("bitsandbytes", "modelopt") and entry.dtype == "U8"
    ):
        bits = _bits(format) if entry.dtype == "I32" else 4
        return count * {"I32": 32}.get(entry.dtype, 8) // bits
    return count


def _of_the_cache_alone(settings: dict[str, Any]) -> bool:
    """Return whether the config quantizes keys and values only, so that the weights are plain."""
    method = settings.get("quant_method")
    if method == "modelopt":
        about = settings.get("quantization", settings)
        return isinstance(about, dict) and "quant_algo" in about and about["quant_algo"] in (None, "NO_QUANT")
    return (
        method == "compressed-tensors" and bool(settings.get("kv_cache_scheme")) and not settings.get("config_groups")
    )


def _modelopt(where: Path, settings: dict[str, Any]) -> dict[str, Any]:
    """{} where ModelOpt quantized no weight."""
    about = settings.get("quantization", settings)
    if not isinstance(about, dict):
        raise UsageError(f"{where}: quantization is {type(about).__name__}, expected a JSON object. {AGAIN}")
    return about if about.get("quant_algo") not in (None, "NO_QUANT") else {}


def _bits(format: Format) -> int:
    """Return the bits in the config; the readers check them against the shapes."""
    groups = format.settings.get("config_groups")
    if isinstance(groups, dict):
        for group in groups.values():
            weights = group.get("weights") if isinstance(group, dict) else None
            if isinstance(weights, dict) and type(weights.get("num_bits")) is int and weights["num_bits"] > 0:
                return weights["num_bits"]
    bits = format.settings.get("bits", format.settings.get("w_bit"))
    return bits if type(bits) is int and 1 <= bits <= 16 else 4


def _method(where: Path, settings: dict[str, Any]) -> str:
    """Return the config's format, guessed from other keys where it has no `quant_method`. Raises for unread formats."""
    method = settings.get("quant_method")
    if method == "intel/auto-round":  # before 0.4
        return "auto-round"
    if method is None:
        if "config_groups" in settings:  # compressed-tensors before it named itself
            return "compressed-tensors"
        if settings.get("load_in_4bit") or settings.get("load_in_8bit"):
            return "bitsandbytes"
        if "bits" in settings and "group_size" in settings:
            return "gptq"
        raise UsageError(
            f"{where} has a quantization config without quant_method, and no other key in it names the format. Formats "
            f"that are read: {', '.join(METHODS)}."
        )
    if method in METHODS and method != "gguf":
        return str(method)
    if isinstance(method, str) and method in _NOT_READ:
        kind = f" ({settings['quant_algo']})" if isinstance(settings.get("quant_algo"), str) else ""
        raise _not_read(where, method, kind)
    raise UsageError(f"{where}: unknown quant_method {str(method)!r:.60}. Formats that are read: {', '.join(METHODS)}.")


def _not_read(where: Path, method: str, kind: str = "") -> NotInThisVersion:
    name, conversion = _NOT_READ[method]
    return NotInThisVersion(
        f"{where}: quant_method {method!r}{kind} ({name}) is not read in this version. {conversion}, or give the "
        "full-precision folder, of which a variant can be made here: quantize: int4. Formats that are read: "
        f"{', '.join(METHODS)}."
    )


def _of_mlx(where: Path) -> NotInThisVersion:
    return NotInThisVersion(
        f"{where}: an MLX checkpoint, quantized by mlx-lm for Apple's machines, is not read in this version. Formats "
        f"that are: {', '.join(METHODS)}. Give the checkpoint in one of these, or judge what MLX answered there: "
        "qualgate gate GATE.yaml --baseline-scores A.jsonl --variant-scores B.jsonl"
    )


def _number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        return -1
