from __future__ import annotations

import math

import pytest
import torch

from qualgate_kernels.rotary import misfit, turn_torch


def test_a_pair_of_numbers_half_a_head_apart_is_turned_by_its_angle():
    """As numbers of the complex plane, each by its own angle."""
    generator = torch.Generator().manual_seed(3)
    query, key = torch.randn(1, 2, 4, 10, generator=generator), torch.randn(1, 1, 4, 10, generator=generator)
    angles = torch.randn(1, 4, 5, generator=generator).repeat(1, 1, 2)
    for found, x in zip(turn_torch(query, key, angles.cos(), angles.sin()), (query, key), strict=True):
        expected = torch.complex(*x.double().chunk(2, -1)) * torch.polar(
            torch.tensor(1.0).double(), angles[:, None, :, :5].double()
        )
        torch.testing.assert_close(found.double(), torch.cat([expected.real, expected.imag], -1), atol=1e-6, rtol=1e-6)
    quarter = torch.full((1, 4, 10), math.pi / 2)
    turned, _ = turn_torch(query, key, quarter.cos().round(), quarter.sin())
    assert torch.equal(turned, torch.cat([-query[..., 5:], query[..., :5]], -1))


@pytest.mark.parametrize(
    ("change", "because"),
    [
        (lambda q, k, c, s: (q[0], k, c, s), "heads"),
        (lambda q, k, c, s: (q, k.expand(2, -1, -1, -1), c, s), "heads"),
        (lambda q, k, c, s: (q[..., :7], k[..., :7], c[..., :7], s[..., :7]), "heads"),
        (lambda q, k, c, s: (q, k.bfloat16(), c, s), "key"),
        (lambda q, k, c, s: (q.double(), k.double(), c, s), "key"),
        (lambda q, k, c, s: (q, k[:, :, 1:], c, s), "key"),
        (lambda q, k, c, s: (q[:, :, :0], k[:, :, :0], c[:, :0], s[:, :0]), "heads"),
        (lambda q, k, c, s: (q.mT.contiguous().mT, k, c, s), "heads"),
        (lambda q, k, c, s: (q, k, c[..., :4], s[..., :4]), "angles"),
        (lambda q, k, c, s: (q, k, c, s.bfloat16()), "angles"),
        (lambda q, k, c, s: (q, k, c[:, None], s[:, None]), "angles"),
        (lambda q, k, c, s: (q, k, c.to("meta"), s), "heads and angles"),
    ],
)
def test_what_the_kernel_does_not_turn_it_says(change, because):
    asked = torch.ones(1, 4, 3, 8), torch.ones(1, 2, 3, 8), torch.ones(1, 3, 8), torch.ones(1, 3, 8)
    assert misfit(*asked) == ""
    assert misfit(*change(*asked)).startswith(f"{because}: expected")
