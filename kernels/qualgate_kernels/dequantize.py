"""From a PackedWeight back to float32: the torch twin, which is the specification and the CPU path.

It runs in every forward, so each format is unpacked with few passes over the weight (a 704 x 256 int4 weight:
0.22 ms on one AVX-512 core, as long as its matmul with 64 rows).
"""

from __future__ import annotations

import torch

from qualgate_kernels.packed import PackedWeight

E2M1 = (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, -0.0, -0.5, -1.0, -1.5, -2.0, -3.0, -4.0, -6.0)
# Both values of a byte at once: one look-up of 8 bytes instead of two of 4.
_E2M1_PAIRS = torch.tensor([(E2M1[byte & 15], E2M1[byte >> 4]) for byte in range(256)]).view(torch.int64).flatten()


def dequantize_torch(packed: PackedWeight) -> torch.Tensor:
    """The weight as float32 [out_features, in_features].

    Exact for the int formats: a code has at most 8 significant bits and a bfloat16 scale 8, so their product fits.
    """
    groups = (packed.shape[0], packed.groups, -1)
    if packed.format == "mxfp4":
        pairs = _E2M1_PAIRS.to(packed.codes.device).take(packed.codes.long())
        exponents = packed.scales.to(torch.int32).sub_(127).unsqueeze(-1)
        return torch.ldexp(pairs.view(torch.float32).view(groups), exponents).view(packed.shape)
    weight = unpack_codes(packed.codes, packed.bits).view(groups)
    return weight.sub_(2 ** (packed.bits - 1)).mul_(packed.scales.float().unsqueeze(-1)).view(packed.shape)


def unpack_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """uint8 [rows, bytes] → float32 [rows, bytes * 8 / bits]: the stored codes, lowest bits first."""
    if bits == 8:
        return codes.float()
    per_byte = 8 // bits
    values = torch.empty(*codes.shape, per_byte, dtype=torch.float32, device=codes.device)
    for place in range(per_byte):
        values[..., place] = (codes >> (place * bits)) & (2**bits - 1)
    return values.flatten(-2)
