"""Keys and values of rows of different lengths: kept as they came, moved together, and nothing of anybody else's."""

from __future__ import annotations

import torch
from transformers import LlamaConfig
from transformers.cache_utils import Cache

from qualgate.engine.padded.cache import ROOM, CachedRow, KVLayer, new_cache, regroup

CONFIG = LlamaConfig(num_hidden_layers=2, hidden_size=16, num_attention_heads=4, num_key_value_heads=2)


def filled(rows: int, slots: int, seed: int) -> Cache:
    """A cache with numbers of its own in every slot."""
    cache, generator = new_cache(CONFIG), torch.Generator().manual_seed(seed)
    for layer in cache.layers:
        layer.update(*(torch.randn(rows, 2, slots, 4, generator=generator) for _ in range(2)))
    return cache


def test_what_is_added_a_few_slots_at_a_time_stands_in_its_order():
    layer, generator = KVLayer(), torch.Generator().manual_seed(0)
    steps = [torch.randn(3, 2, slots, 4, generator=generator) for slots in (5, 1, 1, ROOM, 2, 1)]
    for index, step in enumerate(steps):
        keys, values = layer.update(step, -step)
        whole = torch.cat(steps[: index + 1], dim=2)
        assert torch.equal(keys, whole)
        assert torch.equal(values, -whole)
        assert layer.get_seq_length() == whole.shape[2]
        assert layer.get_mask_sizes(4) == (whole.shape[2] + 4, 0)


def test_a_buffer_grows_by_steps_and_not_by_slots():
    layer = KVLayer()
    layer.update(torch.zeros(1, 1, 3, 4), torch.zeros(1, 1, 3, 4))
    held = set()
    for _ in range(2 * ROOM):
        layer.update(torch.zeros(1, 1, 1, 4), torch.zeros(1, 1, 1, 4))
        assert layer.keys is not None
        held.add(layer.keys.data_ptr())
    assert len(held) == 2


def sides(cache: Cache) -> list[torch.Tensor]:
    """Keys and values, layer by layer."""
    return [side for layer in cache.layers for side in (layer.keys, layer.values) if side is not None]


def test_rows_of_several_caches_stand_side_by_side_with_nothing_but_zeros_beside_them():
    one, other = filled(3, 9, 1), filled(2, 5, 2)
    rows = [CachedRow(one, 2, 4, 8), CachedRow(other, 0, 0, 5), CachedRow(one, 0, 2, 9)]
    expected = [[side[row.row, :, row.start : row.stop].clone() for side in sides(row.cache)] for row in rows]
    found = regroup(rows, CONFIG)
    assert found.get_seq_length() == 7
    for number, side in enumerate(sides(found)):
        assert side.shape == (3, 2, 7 + ROOM, 4)
        for at, kept in enumerate(expected):
            slots = kept[number].shape[1]
            assert torch.equal(side[at, :, 7 - slots : 7], kept[number])
            assert not side[at, :, : 7 - slots].any()
            assert not side[at, :, 7:].any()
    assert (one.get_seq_length(), other.get_seq_length()) == (0, 0)  # given up, layer by layer
