"""The scales that a checkpoint brings for its keys and values, held against its layers."""

from __future__ import annotations

from collections.abc import Iterable

from qualgate.errors import UsageError
from qualgate.quant.cache_scheme import cache_scales, cache_zero_points
from qualgate.quant.formats import Format
from qualgate.quant.readers.source import AGAIN, Source, open_source
from qualgate.quant.shards import Shards
from qualgate_kernels.paged import LEAST_SCALE, MOST_SCALE

SIDES = {"k": "keys", "v": "values"}


def read_cache_scales(shards: Shards, layers: Iterable[int]) -> dict[int, tuple[float, float]]:
    """Return, by layer, the scales of its keys and of its values; {} if the folder has none at all.

    layers: those that keep keys and values. UsageError, with the tensor's name, for a scale that one of them lacks,
    that is no positive number or not one alone, and for zero points that are not 0.
    """
    named = cache_scales(shards)
    if not named:
        return {}
    format = Format(method="the cache", settings={}, where=shards.folder / "config.json")
    with open_source(shards, format) as source:
        for name in cache_zero_points(shards):
            if source.tensor(name).any():
                raise UsageError(f"{source.where(name)}: tensor {name} is not 0, and fp8 has no zero points. {AGAIN}")
        return {layer: (_scale(source, named, layer, "k"), _scale(source, named, layer, "v")) for layer in layers}


def _scale(source: Source, named: dict[int, dict[str, str]], layer: int, side: str) -> float:
    """Return the cache scale of one layer and side ("k" or "v"). UsageError if it is missing or out of range."""
    name = named.get(layer, {}).get(side)
    if name is None:
        (other, *_) = min(named.items())[1].values()
        raise UsageError(
            f"{source.folder} has scales of keys and values, such as {other}, but none of the {SIDES[side]} of layer "
            f"{layer} (layers.{layer}.self_attn.{side}_scale). {AGAIN}"
        )
    scale = source.scale(name, f"one scale for all {SIDES[side]} of a layer")
    if not LEAST_SCALE <= scale <= MOST_SCALE:
        raise UsageError(
            f"{source.where(name)}: tensor {name} is {scale:g}, expected {LEAST_SCALE:g} to {MOST_SCALE:g}: a scale of "
            f"{SIDES[side]} that large or small is damaged. {AGAIN}"
        )
    return scale
