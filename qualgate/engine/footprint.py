"""Sizes of a loaded arm, and the effect of packing on its weights."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import torch

from qualgate.quant.linear import QuantizedLinear
from qualgate.quant.stability import WeightStability
from qualgate.records import CACHE_TOKEN, DEVICE_MEMORY, DRAFT_WEIGHTS, DRAFT_WORKSPACE, ArmFootprint

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def footprint(
    model: PreTrainedModel,
    *,
    on_disk: int,
    weight_bytes: int,
    quantized: int,
    cache_token: int | None,
    weights: int,
    stability: Mapping[str, WeightStability],
    left_out: dict[str, int],
) -> ArmFootprint:
    """Return the sizes of `model`, on its device, fused and laid out for its engine.

    on_disk: bytes of its files; quantized: bytes of its packed weights in their format; weight_bytes: of all weights on
    a server, see `weights_held`; cache_token: bytes of one token in a server's KV cache; weights: count of its numbers;
    stability: of every layer that was packed here, by name; left_out: see `ArmFootprint`.
    """
    tensors = _tensors(model).values()  # laid out, it may have no parameter
    facts = {"memory.weights": float(weight_bytes), DEVICE_MEMORY: float(device_memory(next(iter(tensors)).device))}
    if cache_token is not None:
        facts[CACHE_TOKEN] = float(cache_token)
    in_memory = sum(tensor.nbytes for tensor in tensors)
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


def with_drafts(target: ArmFootprint, drafts: Sequence[ArmFootprint], workspace: int) -> ArmFootprint:
    """Return the target's footprint with the facts of its drafts: a server holds the weights of all, and each token's
    keys and values in all. Other sizes stay the target's. workspace: see `draft_workspace`."""
    beside = sum(draft.facts["memory.weights"] for draft in drafts)
    facts = {
        "memory.weights": target.facts["memory.weights"] + beside,
        DRAFT_WEIGHTS: beside,
        DRAFT_WORKSPACE: float(workspace),
        CACHE_TOKEN: sum(part.facts[CACHE_TOKEN] for part in (target, *drafts)),
    }
    return replace(target, facts=target.facts | facts)


def of_head(target: ArmFootprint, numbers: int, cache_numbers: int, dtype: torch.dtype) -> ArmFootprint:
    """Footprint of a draft head in the target's dtype. numbers: of its weights; cache_numbers: stored per token."""
    sizes = {"memory.weights": numbers, CACHE_TOKEN: cache_numbers}
    return replace(target, facts={name: float(count * dtype.itemsize) for name, count in sizes.items()})


def device_memory(device: torch.device) -> int:
    """Return the total bytes of a device's memory."""
    if device.type == "cuda":
        return torch.cuda.get_device_properties(device).total_memory
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def weights_held(model: PreTrainedModel, dtype: torch.dtype) -> int:
    """Return the bytes of unpacked weights, floats in `dtype`, before they are laid out; tied weights count once."""
    packed = {
        buffer.data_ptr()
        for layer in model.modules()
        if isinstance(layer, QuantizedLinear)
        for buffer in layer.buffers(recurse=False)
    }
    return sum(
        tensor.numel() * (dtype.itemsize if tensor.is_floating_point() else tensor.element_size())
        for address, tensor in _tensors(model).items()
        if address not in packed
    )


def _tensors(model: PreTrainedModel) -> dict[int, torch.Tensor]:
    return {tensor.data_ptr(): tensor for tensor in (*model.parameters(), *model.buffers())}


def steadiness_of(layers: Mapping[str, WeightStability]) -> tuple[dict[str, float], dict[str, str]]:
    """Return the facts `stability.*`, and the reason for each missing one; {} without a packed layer.

    A layer without noise has no ratio and is left out of the worst. A layer with NaN or infinities leaves the fact out,
    because the worst of the other layers would not be the variant's.
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
