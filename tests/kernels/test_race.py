"""Each ordered reduction again and again on a GPU: a race would change bits now and then. Skips where there is none."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import torch

from qualgate_kernels.availability import unavailable
from qualgate_kernels.linear import matmul
from qualgate_kernels.planes import lay_out
from qualgate_kernels.samples import weight

pytestmark = pytest.mark.skipif(
    not torch.cuda.is_available() or unavailable(torch.device("cuda")) != "", reason="needs an NVIDIA GPU and triton"
)


@pytest.mark.parametrize(
    ("form", "to"),
    [("int4 g128", ""), ("int3 g128", ""), ("mxfp4", ""), ("nvfp4", ""), ("int8", "int8"), ("e4m3", "fp8")],
)
@pytest.mark.parametrize("rows", [1, 17, 64])
def test_a_thousand_repetitions_have_the_same_bits(form, to, rows):
    packed = weight(form, 1000, 4096)
    packed = replace(packed, **{name: tensor.cuda() for name, tensor in packed.tensors.items()})
    prepared = lay_out(packed, to, splits=4)
    x = torch.randn(rows, 4096, device="cuda", dtype=torch.bfloat16)
    hashes = {
        hashlib.sha256(matmul(x, prepared).cpu().view(torch.uint8).numpy().tobytes()).digest() for _ in range(1000)
    }
    assert len(hashes) == 1
    alone = matmul(x[:1], prepared)
    assert torch.equal(matmul(x, prepared)[:1], alone)
