"""Packed weights of every format, of random codes and scales, and products with them on a path of one's choice."""

from __future__ import annotations

import pytest
import torch

from qualgate_kernels import cpu
from qualgate_kernels.cpu.dense_layout import PreparedDense
from qualgate_kernels.cpu.library import Library, load
from qualgate_kernels.packed import PackedWeight, pack_codes

compiled = pytest.mark.skipif(not cpu.paths(), reason=cpu.available())
PATHS = cpu.paths() + (("amx_emulated",) if "avx512" in cpu.paths() else ())


def multiply(x: torch.Tensor, prepared: cpu.Prepared | PreparedDense, path: str, threads: int = 2) -> torch.Tensor:
    """`cpu.matmul`, which has no emulation."""
    library = load()
    assert isinstance(library, Library)
    return library.matmul(x, prepared, threads, path)


def weight(code: str, bits: int, rows: int, columns: int, group_size: int, **how) -> PackedWeight:
    """A random weight. how: zero_points, offsets, act_order, tensor_scale, divides; scales: their dtype; block_rows."""
    random = torch.Generator().manual_seed(bits * columns + rows)
    codes = torch.randint(0, 2**bits, (rows, columns), generator=random, dtype=torch.int16).to(torch.uint8)
    if code in ("e4m3", "e5m2"):  # finite ones
        codes[(codes & 0x7F) >= (0x7F if code == "e4m3" else 0x7C)] = 0
    block_rows = how.get("block_rows", 1)
    shape = (-(-rows // block_rows) if block_rows else 1, -(-columns // group_size) if group_size else 1)
    dtype = how.get("scales", torch.bfloat16)
    if dtype == torch.uint8:
        scales = torch.randint(118, 130, shape, generator=random, dtype=torch.uint8)
    else:
        scales = (torch.rand(shape, generator=random) + 0.05).to(dtype)
    zero_points = torch.randint(0, min(2**bits, 255) + 1, shape, generator=random, dtype=torch.int16)
    return PackedWeight(
        code=code,
        bits=bits,
        shape=(rows, columns),
        codes=pack_codes(codes, bits),
        scales=scales,
        group_size=group_size,
        block_rows=block_rows,
        zero_points=zero_points if how.get("zero_points") else None,
        offsets=torch.randn(shape, generator=random) if how.get("offsets") else None,
        tensor_scale=torch.tensor(0.0371) if how.get("tensor_scale") else None,
        tensor_divides=how.get("divides", False),
        g_idx=(torch.randperm(columns, generator=random) // group_size).int() if how.get("act_order") else None,
    )


FORMATS = {
    **{
        f"int{bits} {name}": weight("int", bits, 67, columns, group_size, **how)
        for bits in (2, 3, 4, 5, 6, 8)
        for name, columns, group_size, how in (
            ("grouped", 320, 64, {}),
            ("zero points", 192, 32, {"zero_points": True, "scales": torch.float16}),
            ("offsets", 160, 32, {"offsets": True, "scales": torch.float32}),
        )
    },
    "int4 many groups": weight("int", 4, 130, 1120, 32),  # 35 segments: several stretches, the last one shorter
    "int4 smallest group": weight("int", 4, 3, 24, 8),
    "int4 one weight": weight("int", 4, 1, 1, 0),
    "int4 per row, odd": weight("int", 4, 65, 333, 0, zero_points=True),
    "int3 per tensor": weight("int", 3, 70, 300, 0, block_rows=0),
    "int8 per row": weight("int", 8, 66, 401, 0, scales=torch.float32),
    "int4 act-order": weight("int", 4, 70, 256, 64, act_order=True, zero_points=True),
    "int2 act-order": weight("int", 2, 64, 128, 32, act_order=True),
    "mxfp4": weight("e2m1", 4, 67, 224, 32, scales=torch.uint8),
    "nvfp4": weight("e2m1", 4, 67, 208, 16, scales=torch.float8_e4m3fn, tensor_scale=True, divides=True),
    "mxfp8": weight("e4m3", 8, 67, 96, 32, scales=torch.uint8),
    "mxfp8 e5m2": weight("e5m2", 8, 67, 96, 32, scales=torch.uint8),
    "fp8 e4m3 128x128": weight("e4m3", 8, 200, 300, 128, block_rows=128, scales=torch.float32),
    "fp8 e5m2 128x128": weight("e5m2", 8, 130, 200, 128, block_rows=128, scales=torch.float32),
    "fp8 e4m3 per row": weight("e4m3", 8, 66, 130, 0, scales=torch.float16),
}


def inputs(width: int, dtype: torch.dtype, rows: int) -> torch.Tensor:
    return torch.randn(rows, width, generator=torch.Generator().manual_seed(7)).to(dtype)


def same(one: torch.Tensor, other: torch.Tensor) -> bool:
    """To the bit."""
    integer = torch.int32 if one.dtype == torch.float32 else torch.int16
    return one.dtype == other.dtype and torch.equal(one.view(integer), other.view(integer))
