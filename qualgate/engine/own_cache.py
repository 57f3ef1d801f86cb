"""The format of an arm's keys and values: from the gate file, else as its folder declares, as on servers, else float32.

fp8 uses the folder's scales, 1 if it has none. The module needs no torch; reading scales does.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from qualgate.errors import NotInThisVersion, UsageError
from qualgate.quant.cache_scheme import cache_scales, declared_cache
from qualgate.quant.model_files import ModelFiles
from qualgate.quant.model_folder import ModelFolder
from qualgate.records import ArmSpec

if TYPE_CHECKING:
    from qualgate.engine.choice import Choice

SCALED = ", scales of the checkpoint"  # in the identity of an fp8 cache with scales


def with_own_cache(spec: ArmSpec, files: ModelFiles) -> ArmSpec:
    """Return the arm with the cache format that its folder declares, unless the gate file sets one.

    NotInThisVersion for an unsupported format.
    """
    if spec.kv_cache != "float32" or spec.kv_said or not declared_cache(files):
        return spec
    return replace(spec, kv_cache="fp8")


def cache_identity(spec: ArmSpec, folder: ModelFolder) -> str:
    """Return `ArmIdentity.kv_cache` of an arm. UsageError for a folder with two scales for the same keys or values."""
    form = with_own_cache(spec, folder.files).kv_cache
    if form == "float32":
        return ""
    return form + (SCALED if form == "fp8" and cache_scales(folder.shards) else "")


def own_scales(spec: ArmSpec, folder: ModelFolder, layers: Iterable[int]) -> dict[int, tuple[float, float]]:
    """Return scales of keys and values by layer; {} if all are 1. UsageError for impossible scales, or if the folder
    declares scales and lacks them. spec: from `with_own_cache`; layers: those that keep keys and values."""
    if spec.kv_cache != "fp8":
        return {}
    from qualgate.quant.readers.cache_scales import read_cache_scales

    scales = read_cache_scales(folder.shards, layers)
    if not scales and not spec.kv_said and declared_cache(folder.files):
        raise UsageError(
            f"{folder.path} says that keys and values are fp8, and has no scale of any layer "
            "(layers.0.self_attn.k_scale). Fetch or save this checkpoint again, or write `kv_cache: fp8`, which holds "
            "them by scales of 1."
        )
    return scales if any(pair != (1.0, 1.0) for pair in scales.values()) else {}


def keeping(spec: ArmSpec, folder: ModelFolder, choice: Choice) -> Choice:
    """Return the choice with the arm's format for keys and values."""
    if spec.kv_cache == "float32":
        return choice
    if choice.kind == "padded":
        raise NotInThisVersion(
            f"{spec.name}: {spec.model} runs in padded batches here ({choice.because}), and these hold keys and values "
            f"in float32 alone in this version. Write `kv_cache: float32` in place of {spec.kv_cache} for this arm."
        )
    cache_form = {"bf16": "bfloat16"}.get(spec.kv_cache, spec.kv_cache)
    return replace(choice, cache_form=cache_form, scales=own_scales(spec, folder, sorted(choice.seen)))
