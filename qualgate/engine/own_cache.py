"""How an arm holds keys and values: as the gate file says, else as its folder declares, as servers do, else in float32.

In fp8 the scales are those of its folder, 1 where it has none. The module needs no torch; reading scales does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from qualgate.errors import UsageError
from qualgate.quant.cache_scheme import cache_scales, declared_cache
from qualgate.quant.model_files import ModelFiles
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import ArmSpec

SCALED = ", scales of the checkpoint"  # what an identity says of fp8 that is not held by scales of 1


def with_own_cache(spec: ArmSpec, files: ModelFiles) -> ArmSpec:
    """The arm, with keys and values as its folder declares them where the gate file says nothing of them.

    NotInThisVersion for a format that is not computed.
    """
    if spec.kv_cache != "float32" or spec.kv_said or not declared_cache(files):
        return spec
    return replace(spec, kv_cache="fp8")


def cache_identity(spec: ArmSpec, folder: ModelFolder) -> str:
    """`ArmIdentity.kv_cache` of an arm. UsageError for a folder with two scales of the same keys or values."""
    kept = with_own_cache(spec, folder.files).kv_cache
    if kept == "float32":
        return ""
    return kept + (SCALED if kept == "fp8" and cache_scales(folder.shards) else "")


def own_scales(spec: ArmSpec, folder: ModelFolder, layers: Iterable[int]) -> dict[int, tuple[float, float]]:
    """Scales of keys and values by layer; {} where all are 1. UsageError for scales that cannot be, or that a folder
    lacks which declares them. spec: as `with_own_cache` gives it; layers: those that keep keys and values."""
    if spec.kv_cache != "fp8":
        return {}
    from qualgate.quant.readers.cache_scales import read_cache_scales

    found = read_cache_scales(folder.shards, layers)
    if not found and not spec.kv_said and declared_cache(folder.files):
        raise UsageError(
            f"{folder.path} says that keys and values are fp8, and has no scale of any layer "
            "(layers.0.self_attn.k_scale). Fetch or save this checkpoint again, or write `kv_cache: fp8`, which holds "
            "them by scales of 1."
        )
    return found if any(pair != (1.0, 1.0) for pair in found.values()) else {}
