"""The quantization configs of one folder held against each other, key by key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.quant.agreement.table import READINGS

# What decides a reading, by every name that it has in one of these files.
_KEYS: tuple[tuple[str, ...], ...] = (
    ("quant_method",), ("bits", "w_bit"), ("group_size", "q_group_size"), ("desc_act",), ("sym",), ("zero_point",),
    ("version",), ("checkpoint_format", "format"), ("format",), ("method",), ("pack_dtype",), ("is_marlin_format",),
    ("dynamic",), ("lm_head",), ("modules_in_block_to_quantize",), ("modules_to_not_convert",), ("quant_algo",),
    ("ignore", "exclude_modules"), ("kv_cache_quant_algo", "kv_cache_scheme"),
)  # fmt: skip
# What a file of that quant_method means by the first of the names where it says none of them. Of other keys that is not
# known, so nothing is compared.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gptq": {
        "checkpoint_format": "gptq", "pack_dtype": "int32", "is_marlin_format": False, "dynamic": {}, "lm_head": False,
        "desc_act": False, "sym": True,
    },
    "modelopt": {"kv_cache_quant_algo": "none"},
}  # fmt: skip


def check_configs_agree(configs: Sequence[tuple[Path, Mapping[str, Any]]]) -> None:
    """Raise UsageError for a key that two files of a folder give differently. configs: each file, and its settings."""
    for file, others in configs[1:]:
        where, settings = configs[0]
        if file == where and settings != others:
            raise UsageError(
                f"{where} has quantization_config and compression_config, and they differ: servers read the first. "
                "Remove compression_config, or correct the one that is wrong."
            )
        for names in _KEYS:
            our_value, their_value = _value(settings, names), _value(others, names)
            if our_value is not None and their_value is not None and our_value != their_value:
                raise UsageError(
                    f"{where} says {_key(settings, names)} {our_value!r:.80}, and {file} says {_key(others, names)} "
                    f"{their_value!r:.80}: {READINGS['two configs'].sentence}, while the library that wrote "
                    f"{file.name} reads that file. Correct the one that is wrong, or remove it."
                )


def check_not_nested(where: Path, config: Mapping[str, Any]) -> None:
    """Raise UsageError for a quantization config that stands where only some servers look for it."""
    nested = config.get("text_config")
    if isinstance(nested, dict) and isinstance(nested.get("quantization_config"), dict):
        raise UsageError(
            f"{where} has its quantization_config under text_config: {READINGS['nested config'].sentence}. Move it to "
            "the top of that file."
        )


def _key(settings: Mapping[str, Any], names: tuple[str, ...]) -> str:
    return next((name for name in names if f"'{name}':" in str(settings)), names[0])


def _value(settings: Mapping[str, Any], names: tuple[str, ...]) -> Any:
    """Return the first of `names` that is set, in a form that compares across formats; else the format's default.

    Cache schemes become their name, names small letters, and lists sorted. A group size is also looked up in
    `config_groups`, if all groups have the same.
    """
    inner = settings.get("quantization")
    for source in (settings, inner if isinstance(inner, dict) else {}):
        for name in names:
            value = source.get(name)
            if name == "kv_cache_scheme" and isinstance(value, dict):
                kind = (value.get("num_bits"), value.get("type"))
                return "fp8" if kind == (8, "float") else "nvfp4" if kind == (4, "float") else value
            if isinstance(value, str):
                return value.lower()
            if isinstance(value, list) and all(isinstance(item, str) for item in value):
                return sorted(value)
            if value is not None:
                return value
    if "group_size" in names and isinstance(groups := settings.get("config_groups"), dict):
        weights = [group.get("weights") for group in groups.values() if isinstance(group, dict)]
        sizes = [
            scheme["group_size"]
            for scheme in weights
            if isinstance(scheme, dict) and scheme.get("group_size") is not None
        ]
        return sizes[0] if sizes and sizes.count(sizes[0]) == len(sizes) else None
    return _DEFAULTS.get(str(settings.get("quant_method")), {}).get(names[0])
