"""Attention over a quantized cache, against float64 on the dequantized keys and values."""

from __future__ import annotations

import pytest
import torch

from qualgate_kernels.attention import FORMATS, QuantizedCache, attend_torch, new_cache, write

EPS = {torch.float32: 2e-6, torch.float16: 2**-10, torch.bfloat16: 2**-7}  # a few roundings of numbers up to 3


def filled(format, batch=2, heads=2, length=150, dim=32, channels=False, seed=0):
    torch.manual_seed(seed)
    keys, values = torch.randn(2, batch, heads, length, dim)
    scales = keys.abs().amax((0, 2)) / FORMATS[format][1] if channels else None
    cache = new_cache(format, batch, heads, length + 20, dim, key_channel_scales=scales)
    write(cache, torch.zeros(batch, dtype=torch.int64), keys, values)
    return cache, keys, values


def dequantized(codes, scales, format):
    numbers = codes.double()
    if format == "int4":
        numbers = torch.cat([codes.long() % 16 - 8, codes.long() // 16 - 8], -1).double()
    return numbers * scales.double()


def oracle(query, cache: QuantizedCache, start):
    group = query.shape[1] // cache.heads
    scales = cache.key_scales[..., None] if cache.key_scales is not None else cache.key_channel_scales[:, None, :]
    keys = dequantized(cache.keys, scales, cache.format).repeat_interleave(group, 1)
    values = dequantized(cache.values, cache.value_scales[..., None], cache.format).repeat_interleave(group, 1)
    logits = query.double() @ keys.transpose(-1, -2) * cache.head_dim**-0.5
    at = start[:, None, None, None] + torch.arange(query.shape[2])[:, None]
    logits = logits.masked_fill(torch.arange(cache.capacity) > at, -torch.inf)
    return logits.softmax(-1) @ values


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("channels", [False, True])
@pytest.mark.parametrize("format", FORMATS)
def test_attention_is_that_to_the_dequantized_numbers(format, channels, dtype):
    cache, _, _ = filled(format, length=300, channels=channels)
    start = torch.tensor([270, 61])
    for heads, rows in ((2, 1), (6, 3), (4, 16)):
        query = torch.randn(2, heads, rows, 32).to(dtype)
        found = attend_torch(query, cache, start)
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), oracle(query, cache, start), rtol=0, atol=EPS[dtype])


@pytest.mark.parametrize("dtype", EPS)
@pytest.mark.parametrize("format", FORMATS)
def test_a_row_is_the_same_in_decode_verify_and_prefill(format, dtype):
    cache, _, _ = filled(format, batch=1, length=290)
    query = torch.randn(1, 6, 290, 32).to(dtype)
    whole = attend_torch(query, cache, torch.tensor([0]))
    for first, rows in ((0, 1), (63, 1), (64, 1), (289, 1), (60, 9), (250, 16), (1, 3)):
        part = attend_torch(query[:, :, first : first + rows].contiguous(), cache, torch.tensor([first]))
        assert torch.equal(part, whole[:, :, first : first + rows]), (first, rows)
