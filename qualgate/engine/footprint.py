"""What a loaded arm is in numbers: its sizes, and what packing did to its weights."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import torch

from qualgate.engine.cache import KVLayer, new_cache
from qualgate.engine.forward import open_decoder
from qualgate.errors import NotInThisVersion
from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.stability import WeightStability
from qualgate.records import CACHE_TOKEN, DEVICE_MEMORY, ArmFootprint

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def footprint(
    model: PreTrainedModel,
    dtype: torch.dtype,
    *,
    on_disk: int,
    quantized: int,
    weights: int,
    stability: Mapping[str, WeightStability],
    left_out: dict[str, int],
) -> ArmFootprint:
    """Sizes of `model`, on its device and fused, with floats of `dtype` (held as float32).

    on_disk, quantized: bytes of its files, and of its packed weights as their format has them. weights: numbers that
    it stands for. stability: of every layer that was packed here, by name. left_out: see `ArmFootprint`.
    """
    held = {tensor.data_ptr(): tensor for tensor in (*model.parameters(), *model.buffers())}
    packed = {
        buffer.data_ptr()
        for layer in model.modules()
        if isinstance(layer, QuantizedLinear)
        for buffer in layer.buffers(recurse=False)
    }
    floats = sum(
        tensor.numel() * (dtype.itemsize if tensor.is_floating_point() else tensor.element_size())
        for place, tensor in held.items()
        if place not in packed
    )
    facts = {"memory.weights": float(quantized + floats), DEVICE_MEMORY: float(device_memory(model.device))}
    token = _cached_numbers(model)
    if token is not None:
        facts[CACHE_TOKEN] = float(token * dtype.itemsize)
    in_memory = sum(tensor.nbytes for tensor in held.values())
    steadiness, unmeasured = steadiness_of(stability)
    return ArmFootprint(
        bytes_on_disk=on_disk,
        bytes_in_memory=in_memory,
        quantized_bytes=quantized,
        effective_bits=8 * in_memory / weights,
        facts=facts | steadiness,
        unmeasured=unmeasured,
        left_out=left_out,
    )


def device_memory(device: torch.device) -> int:
    """Bytes in all, whoever holds them now."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _cached_numbers(model: PreTrainedModel) -> int | None:
    """Numbers that one token leaves in the KV cache, as one token shows; None for models whose state is another."""
    with open_decoder(model) as decoder:
        try:
            cache = new_cache(decoder.config)
        except NotInThisVersion:
            return None
        one = torch.zeros(1, 1, dtype=torch.long, device=decoder.device)
        decoder.forward(one, torch.ones(1, dtype=torch.long, device=decoder.device), cache, keep=1)
    kept = [side for layer in cache.layers if isinstance(layer, KVLayer) for side in (layer.keys, layer.values)]
    return sum(side.numel() for side in kept if side is not None)


def steadiness_of(layers: Mapping[str, WeightStability]) -> tuple[dict[str, float], dict[str, str]]:
    """The facts `stability.*`, none without a packed layer, and why one has no number.

    A layer without noise has no ratio to it, and is left out of the worst. One with NaN or infinities is not: the
    others' worst would not be the variant's.
    """
    if not layers:
        return {}, {}
    facts = {"stability.steady": sum(layer.steady for layer in layers.values()) / len(layers)}
    if broken := [name for name, layer in layers.items() if not layer.counted]:
        why = f"{len(broken)} of {len(layers)} packed layers hold NaN or infinities, {broken[0]} among them"
        return facts, dict.fromkeys(("stability.saturated", "stability.sqnr"), why)
    elements = sum(layer.elements for layer in layers.values())
    facts["stability.saturated"] = sum(layer.saturated for layer in layers.values()) / elements
    noisy = [layer.sqnr for layer in layers.values() if layer.sqnr is not None]
    if not noisy:
        return facts, {"stability.sqnr": "packing changed no weight, so there is no noise to take a ratio to"}
    return facts | {"stability.sqnr": min(noisy)}, {}
