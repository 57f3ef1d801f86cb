"""Random weights of every format: what the static gate compiles for, the benchmarks time and the tests compare."""

from __future__ import annotations

import re

import torch

from qualgate_kernels.packed import PackedWeight, pack_codes


def weight(form: str, out_features: int, in_features: int, seed: int = 0) -> PackedWeight:
    """A random weight of format `form`: "int4 g128", "int8", "mxfp4", "e4m3 128x128", ..., "asym" for zero points."""
    generator = torch.Generator().manual_seed(seed)
    name, *rest = form.split()
    code, bits = ("int", int(name[3:])) if name.startswith("int") else (name, 8)
    group = next((int(word[1:]) for word in rest if re.fullmatch(r"g\d+", word)), 0)
    rows, dtype = 1, torch.bfloat16
    if name in ("mxfp4", "nvfp4"):
        code, bits, group, dtype = "e2m1", 4, {"mxfp4": 32, "nvfp4": 16}[name], torch.uint8
    if "128x128" in rest:
        rows, group, dtype = 128, 128, torch.float32
    groups = -(-in_features // group) if group else 1
    scales = torch.rand(-(-out_features // rows), groups, generator=generator) / 64 + 1 / 64
    if name == "mxfp4":
        scales = (120 + 8 * scales * 32).to(torch.uint8)
    else:
        scales = scales.to(torch.float8_e4m3fn if name == "nvfp4" else dtype)
    codes = torch.randint(0, 2**bits, (out_features, in_features), dtype=torch.uint8, generator=generator)
    if code in ("e4m3", "e5m2"):
        codes &= 0xFB if code == "e5m2" else 0xF7  # no NaN, no infinity
    zero_points = None
    if "asym" in rest:
        zero_points = torch.randint(0, 2**bits, scales.shape, dtype=torch.int16, generator=generator)
    return PackedWeight(
        code=code,  # type: ignore[arg-type]
        bits=bits,
        shape=(out_features, in_features),
        codes=pack_codes(codes, bits),
        scales=scales,
        group_size=group,
        block_rows=rows,
        zero_points=zero_points,
        tensor_scale=torch.tensor(0.5) if name == "nvfp4" else None,
    )
