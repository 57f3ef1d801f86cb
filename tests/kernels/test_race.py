"""Each ordered reduction again and again on a GPU: a race would change bits now and then. Skips where there is none."""

from __future__ import annotations

import hashlib
from dataclasses import replace

import pytest
import torch

from qualgate_kernels import dispatch
from qualgate_kernels.availability import unavailable
from qualgate_kernels.linear import matmul
from qualgate_kernels.paged import Places, Seen, attend_torch, keep_torch, new_blocks
from qualgate_kernels.planes import lay_out
from qualgate_kernels.samples import weight
from qualgate_kernels.slots import SLOTS

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


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("heads", "dim"), [(10, 128), (2, 80), (6, 256)])
@pytest.mark.parametrize("seen", [Seen(scale=0.1), Seen(scale=0.3, soft_cap=5.0, window=300)])
def test_a_row_of_paged_attention_has_its_bits_alone_in_spans_side_by_side_and_in_a_row(seen, heads, dim, dtype):
    """A prompt of 700 rows, a draft and a row that decodes: compiled, in other grids and at other places in a pack."""
    from qualgate_kernels.paged_gpu import attend_paged_triton

    width = -(-1000 // SLOTS)
    generator = torch.Generator().manual_seed(0)
    table = torch.randperm(3 * width, generator=generator).int().view(3, width)
    blocks = new_blocks(3 * width, 2, dim, form=str(dtype).removeprefix("torch."), device="cuda")
    twin = new_blocks(3 * width, 2, dim, form=str(dtype).removeprefix("torch."))

    def places(rows):
        sequence, position = torch.tensor(rows, dtype=torch.int32).T.contiguous()
        return Places(table=table, sequence=sequence, position=position)

    everything = places([(number, position) for number in range(3) for position in range(1000)])
    key, value = torch.randn(2, 3000, 2, dim, generator=generator)
    keep_torch(twin, everything, key, value)
    dispatch.keep_paged(blocks, everything, key.cuda(), value.cuda())
    assert torch.equal(blocks.keys.cpu(), twin.keys)
    assert torch.equal(blocks.values.cpu(), twin.values)
    rows = [(0, p) for p in range(700)] + [(1, p) for p in range(900, 909)] + [(2, 999)]
    query = torch.randn(len(rows), heads, dim, generator=generator).cuda()
    whole = attend_paged_triton(query, blocks, places(rows), seen, split=False)
    exact = attend_torch(query.cpu(), twin, places(rows), seen)
    torch.testing.assert_close(whole.cpu(), exact, atol=2e-5, rtol=1e-4)
    for _ in range(100):
        assert torch.equal(attend_paged_triton(query, blocks, places(rows), seen, split=True), whole)
    for index in (0, 255, 256, 699, 700, 704, 708, 709):
        alone = dispatch.attend_paged(query[index : index + 1], blocks, places([rows[index]]), seen)
        assert torch.equal(alone[0], whole[index]), index
