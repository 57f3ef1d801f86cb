"""PackedWeight: a linear layer's quantized weight as it lies on disk and in memory."""

from __future__ import annotations

from dataclasses import dataclass

import torch

BITS = {"int8": 8, "int4": 4, "int2": 2, "mxfp4": 4}  # of one code
MXFP4_BLOCK = 32  # weights that share one exponent, OCP Microscaling Formats 1.0


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedWeight:
    """A weight of `shape` [out_features, in_features] in one of the formats of `BITS`.

    codes:  uint8 [out_features, in_features * bits / 8], packed along in_features, lowest bits first.
            int8, int4, int2: stored code = q + 2**(bits - 1), weight = q * scale. mxfp4: E2M1, sign in the highest bit.
    scales: int formats: bfloat16 [out_features, groups], the width of real checkpoints with float32's range.
            mxfp4: uint8 [out_features, in_features / 32], E8M0: scale = 2**(exponent - 127).
    group_size: in_features that share a scale; 0 = the whole row (int formats only).
    """

    format: str
    shape: tuple[int, int]
    group_size: int
    codes: torch.Tensor
    scales: torch.Tensor

    def __post_init__(self) -> None:
        if self.format not in BITS:
            raise ValueError(f"format {self.format!r}: expected one of {', '.join(BITS)}")
        out_features, in_features = self.shape
        if self.format == "mxfp4" and self.group_size != MXFP4_BLOCK:
            raise ValueError(f"mxfp4 has blocks of {MXFP4_BLOCK}, not {self.group_size}")
        if in_features % (self.group_size or 1) or in_features * self.bits % 8:
            raise ValueError(
                f"in_features {in_features} does not divide into groups of {self.group_size} and whole bytes of "
                f"{self.format} codes"
            )
        scale_dtype = torch.uint8 if self.format == "mxfp4" else torch.bfloat16
        for name, tensor, dtype, shape in (
            ("codes", self.codes, torch.uint8, (out_features, in_features * self.bits // 8)),
            ("scales", self.scales, scale_dtype, (out_features, self.groups)),
        ):
            if tensor.dtype != dtype or tuple(tensor.shape) != shape:
                raise ValueError(
                    f"{name} of a {self.format} weight {list(self.shape)}: expected {dtype} {list(shape)}, "
                    f"got {tensor.dtype} {list(tensor.shape)}"
                )

    @property
    def bits(self) -> int:
        return BITS[self.format]

    @property
    def groups(self) -> int:
        """Groups in a row."""
        return self.shape[1] // self.group_size if self.group_size else 1

    @property
    def nbytes(self) -> int:
        return self.codes.nbytes + self.scales.nbytes

    @property
    def effective_bits(self) -> float:
        """Bits a weight, scales included."""
        return 8 * self.nbytes / (self.shape[0] * self.shape[1])
