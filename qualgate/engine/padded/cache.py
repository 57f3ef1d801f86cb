"""The KV cache: rows of different lengths, right-aligned, in buffers that grow by steps.

transformers' own cache concatenates at every step, which copies all keys and values: for a small model on a CPU that
takes longer than the step's matmuls.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers import PreTrainedConfig
from transformers.cache_utils import Cache, CacheLayerMixin, DynamicCache, DynamicLayer, DynamicSlidingWindowLayer

from qualgate.errors import NotInThisVersion

ROOM = 64  # slots added when a buffer is full


class KVLayer(CacheLayerMixin):
    """One layer's keys and values, [rows, heads, capacity, head_dim] each; the first `length` slots are filled.

    A sliding-window layer keeps every slot: transformers' mask hides those outside the window.
    """

    is_sliding = False

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        """Take the first keys and values as they are, [rows, heads, new, head_dim] each."""
        self.keys, self.values, self.is_initialized = key_states, value_states, True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args, **kwargs
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Append [rows, heads, new, head_dim]; returns all filled keys and values as views."""
        start, self.length = self.length, self.length + key_states.shape[-2]
        if self.keys is None or self.values is None:
            self.lazy_initialization(key_states, value_states)
            return key_states, value_states
        if self.length > self.keys.shape[-2]:
            self.keys, self.values = _grown(self.keys, self.length), _grown(self.values, self.length)
        self.keys[:, :, start : self.length] = key_states
        self.values[:, :, start : self.length] = value_states
        return self.keys[:, :, : self.length], self.values[:, :, : self.length]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        """Return (slots read with `query_length` new ones, the first of them)."""
        return self.length + query_length, 0

    def get_seq_length(self) -> int:
        """Return the number of filled slots."""
        return self.length

    def get_max_length(self) -> int:
        """Return -1: the cache grows."""
        return -1


@dataclass(frozen=True, slots=True)
class CachedRow:
    """The slots [start, stop) of one row of a cache."""

    cache: Cache
    row: int
    start: int
    stop: int


def new_cache(config: PreTrainedConfig) -> Cache:
    """Return an empty cache for a model. Raises NotInThisVersion for models whose state is not keys and values
    alone."""
    layers: list[Any] = []
    for layer in DynamicCache(config=config).layers:
        if type(layer) in (DynamicLayer, DynamicSlidingWindowLayer):
            layers.append(KVLayer())
        elif type(layer).__name__ == "DummyLayer":  # it reads another layer's keys and values
            layers.append(layer)
        else:
            raise NotInThisVersion(
                f"{config.model_type} keeps a {type(layer).__name__} state; this version runs attention layers only."
            )
    return Cache(layers=layers)


def regroup(rows: Sequence[CachedRow], config: PreTrainedConfig) -> Cache:
    """Move these rows into a new right-aligned cache with room to grow. The old caches lose their layers."""
    cache = new_cache(config)
    width = max(row.stop - row.start for row in rows)
    sources = list({id(row.cache): row.cache for row in rows}.values())
    for index, layer in enumerate(cache.layers):
        old_layers = {id(source): source.layers[index] for source in sources}
        if not isinstance(layer, KVLayer) or not any(
            getattr(layer, "is_initialized", False) for layer in old_layers.values()
        ):
            continue
        layer.lazy_initialization(
            *(
                _aligned([(getattr(old_layers[id(row.cache)], side), row) for row in rows], width)
                for side in ("keys", "values")
            )
        )
        layer.length = width
        for source in sources:  # freed layer by layer, so that two whole caches never stand side by side
            source.layers[index] = KVLayer()
    return cache


def compacted(rows: Sequence[CachedRow], config: PreTrainedConfig) -> list[CachedRow]:
    """Copy the rows into a small cache of their own, so that the old one can be freed."""
    if not rows:
        return []
    cache = regroup(rows, config)
    width = cache.get_seq_length()
    return [CachedRow(cache, index, width - (row.stop - row.start), width) for index, row in enumerate(rows)]


def _aligned(rows: list[tuple[torch.Tensor, CachedRow]], width: int) -> torch.Tensor:
    first = rows[0][0]
    # Zeros, not empty: a masked NaN would still spoil a row's attention.
    buffer = first.new_zeros(len(rows), first.shape[1], width + ROOM, first.shape[3])
    for new, (states, row) in zip(buffer, rows, strict=True):
        new[:, width - (row.stop - row.start) : width] = states[row.row, :, row.start : row.stop]
    return buffer


def _grown(states: torch.Tensor, length: int) -> torch.Tensor:
    rows, heads, capacity, head_dim = states.shape
    buffer = states.new_zeros(rows, heads, length + ROOM, head_dim)
    buffer[:, :, :capacity] = states
    return buffer
