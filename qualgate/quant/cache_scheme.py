"""A checkpoint's scheme for keys and values: whether a server holds them in fp8, and by which scales.

compressed-tensors has `kv_cache_scheme` in its quantization config, ModelOpt `kv_cache_quant_algo`, there or in
hf_quant_config.json. vLLM 0.33 holds keys and values so wherever its own setting is `auto`. The scales are tensors of
one number each, by which a code is multiplied:

    layers.N.self_attn.k_scale, v_scale                        llm-compressor today
    layers.N.self_attn.k_proj.output_scale, v_proj.…           llm-compressor and AutoFP8 before
    layers.N.self_attn.k_proj.k_scale, v_proj.v_scale          ModelOpt; qkv_proj.k_scale where the three are one
    layers.N.self_attn.kv_scale                                of keys and values both, older still

Needs no torch.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.full_precision import UNUSED_HEAD
from qualgate.quant.model_files import ModelFiles
from qualgate.quant.shards import Shards

_SAID_BY = ("compressed-tensors", "modelopt", None)  # quant_method; older compressed-tensors names none
_SCALE = re.compile(
    r"(?:^|\.)layers\.(?P<layer>\d{1,6})\.(?:self_attn|attn|attention)\."
    r"(?:(?:qkv_proj\.)?(?P<own>k|v|kv)_scale|(?P<side>[kv])_proj\.(?:(?P=side)_scale|output_scale))$"
)
_ZERO_POINT = re.compile(r"\.[kv]_zero_point$|\.[kv]_proj\.(output|k|v)_zero_point$")


def declared_cache(files: ModelFiles) -> str:
    """ "fp8" where the folder's config says that a server holds keys and values so, "" where it says nothing of them.

    NotInThisVersion for another format.
    """
    where, scheme = _said(files)
    if scheme in (None, "", "NO_QUANT") or scheme == {}:
        return ""
    if _is_fp8(scheme):
        return "fp8"
    raise NotInThisVersion(
        f"{where}: keys and values quantized as {scheme!s:.160} are not computed in this version, only 8-bit floats "
        "with one static scale for a layer's keys and one for its values. Choose a format for this arm in the gate "
        "file, for example `kv_cache: int8`."
    )


def _said(files: ModelFiles) -> tuple[Path, Any]:
    """Return (the file that says how keys and values are quantized, what it says)."""
    for key in ("quantization_config", "compression_config"):
        settings = files.config.get(key)
        if isinstance(settings, dict) and settings.get("quant_method") in _SAID_BY:
            inner = settings.get("quantization")
            for about in (inner if isinstance(inner, dict) else {}, settings):
                if scheme := about.get("kv_cache_scheme") or about.get("kv_cache_quant_algo"):
                    return files.path / "config.json", scheme
    name = "hf_quant_config.json"
    about = files.json(name).get("quantization", files.json(name))
    return files.path / name, about.get("kv_cache_quant_algo") if isinstance(about, dict) else None


def _is_fp8(scheme: Any) -> bool:
    if not isinstance(scheme, dict):
        return isinstance(scheme, str) and scheme.casefold() == "fp8"
    plain = scheme.get("num_bits") == 8 and scheme.get("type") == "float" and scheme.get("symmetric") is not False
    static = scheme.get("dynamic") in (False, None) and scheme.get("strategy") in ("tensor", None)
    return plain and static and not scheme.get("group_size") and not scheme.get("block_structure")


def cache_scales(shards: Shards) -> dict[int, dict[str, str]]:
    """Return, by layer, the tensor names of the scales of keys ("k") and values ("v"). UsageError for duplicates."""
    scales: dict[int, dict[str, str]] = {}
    for name in shards.entries:
        match = _SCALE.search(name)
        if match is None or UNUSED_HEAD.search(name):
            continue
        sides = scales.setdefault(int(match["layer"]), {})
        for side in match["own"] or match["side"]:
            if side in sides:
                raise UsageError(
                    f"{shards.folder}: {sides[side]} and {name} are two scales of the same keys or values. Fetch or "
                    "save this checkpoint again."
                )
            sides[side] = name
    return scales


def cache_zero_points(shards: Shards) -> Iterable[str]:
    """Tensors that say which code of keys and values is 0: of fp8, which is symmetric, they must be 0."""
    return (name for name in shards.entries if _ZERO_POINT.search(name) and not UNUSED_HEAD.search(name))


def is_cache_scale(name: str) -> bool:
    """Whether a tensor's name, or one with * for each number, is of what `cache_scales` finds."""
    return _SCALE.search(name.replace("*", "0")) is not None
