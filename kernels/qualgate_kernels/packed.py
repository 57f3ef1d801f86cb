"""PackedWeight: a linear layer's quantized weight, as every checkpoint format ends and every kernel begins."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Literal

import torch

Code = Literal["int", "e2m1", "e4m3", "e5m2", "nf4"]
CODE_BITS: dict[str, tuple[int, ...]] = {
    "int": (2, 3, 4, 5, 6, 7, 8),
    "e2m1": (4,),
    "e4m3": (8,),
    "e5m2": (8,),
    "nf4": (4,),
}
SCALE_DTYPES = (torch.bfloat16, torch.float16, torch.float32, torch.float8_e4m3fn, torch.uint8)
MXFP4_BLOCK = 32  # weights that share one exponent, OCP Microscaling Formats 1.0
NVFP4_BLOCK = 16
PER_SCALE = ("scales", "zero_points", "offsets")
TENSORS = ("codes", *PER_SCALE, "tensor_scale", "g_idx")  # the fields that are tensors


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PackedWeight:
    """A weight of `shape` [N out_features, K in_features]: codes, and what turns a code into a number.

    weight[n, k] = value(code[n, k]) * scale        value: the code's number, see `code`; scale: that of n's row block
                                                    and k's group, as a float32 number
    code "int":  value = code - zero_point          unsigned codes of 2 to 8 bits
                 with offsets: weight = code * scale + offset
    code "e2m1", "e4m3", "e5m2": the number these sign, exponent and mantissa bits spell (OCP), sign highest
    code "nf4":  the code-th of 16 normal-float levels (QLoRA, bitsandbytes)

    codes:        uint8 [N, ceil(K * bits / 8)]: one dense bitstream a row along in_features, lowest bits first
    scales:       [row_blocks, groups]; bfloat16, float16, float32, float8_e4m3fn (NVFP4), or uint8 = E8M0:
                  scale = 2**(e - 127), 255 = NaN (MX formats)
    group_size:   in_features that share a scale; 0 = the whole row. The last group may be shorter only with row blocks
    block_rows:   rows that share a scale; 0 = all of them. The last block may be shorter
    zero_points:  int only: int16 or uint8, shaped like scales, counted in codes; None = 2**(bits - 1), symmetric
    offsets:      int only: float, shaped like scales (GGUF's minima, sign included)
    tensor_scale: float32 scalar over all scales, multiplied (torchao) or, with `tensor_divides`, divided by
                  (compressed-tensors); the scale is rounded to float32 after this step
    g_idx:        int32 [K], the group of each in_feature, instead of k // group_size (act-order)

    ValueErrors name the field, what was expected and what was found. g_idx is checked by value as well: a group that
    is not there would be read out of bounds.
    """

    code: Code
    bits: int
    shape: tuple[int, int]
    codes: torch.Tensor
    scales: torch.Tensor
    group_size: int
    block_rows: int = 1
    zero_points: torch.Tensor | None = None
    offsets: torch.Tensor | None = None
    tensor_scale: torch.Tensor | None = None
    tensor_divides: bool = False
    g_idx: torch.Tensor | None = None

    def __post_init__(self) -> None:
        """Raise ValueError for a code, shape or tensor that does not fit the others."""
        if self.code not in CODE_BITS:
            raise ValueError(f"code: expected one of {', '.join(CODE_BITS)}, got {self.code!r}")
        if type(self.bits) is not int or self.bits not in CODE_BITS[self.code]:
            raise ValueError(
                f"bits of {self.code} codes: expected {' or '.join(map(str, CODE_BITS[self.code]))}, got {self.bits!r}"
            )
        if len(self.shape) != 2 or any(type(extent) is not int or extent < 1 for extent in self.shape):
            raise ValueError(f"shape: expected two positive extents [out, in], got {list(self.shape)}")
        for name, value in (("group_size", self.group_size), ("block_rows", self.block_rows)):
            if type(value) is not int or not 0 <= value < 2**31:
                raise ValueError(f"{name}: expected 0 (all) or a positive number, got {value!r:.40}")
        if self.group_size and self.shape[1] % self.group_size and self.block_rows == 1:
            raise ValueError(
                f"group_size: expected a divisor of {self.shape[1]} in_features (only formats with row blocks may end "
                f"with a shorter group), got {self.group_size}"
            )
        if self.code != "int" and (self.zero_points is not None or self.offsets is not None):
            raise ValueError(f"zero_points, offsets: expected none with {self.code} codes, which are signed numbers")
        if self.zero_points is not None and self.offsets is not None:
            raise ValueError("offsets: expected none beside zero_points, got both")
        floats = (torch.bfloat16, torch.float16, torch.float32)
        per_scale = (self.row_blocks, self.groups)
        for name, dtypes, shape in (
            ("codes", (torch.uint8,), (self.shape[0], (self.shape[1] * self.bits + 7) // 8)),
            ("scales", SCALE_DTYPES, per_scale),
            ("zero_points", (torch.int16, torch.uint8), per_scale),
            ("offsets", floats, per_scale),
            ("tensor_scale", (torch.float32,), ()),
            ("g_idx", (torch.int32,), (self.shape[1],)),
        ):
            tensor: torch.Tensor | None = getattr(self, name)
            if tensor is None:
                if name in ("codes", "scales"):
                    raise ValueError(f"{name}: expected a tensor, got None")
                continue
            if tensor.dtype not in dtypes or tuple(tensor.shape) != shape:
                raise ValueError(
                    f"{name} of {self.format}, shape {list(self.shape)}: expected "
                    f"{' or '.join(_plain(dtype) for dtype in dtypes)} {list(shape)}, "
                    f"got {_plain(tensor.dtype)} {list(tensor.shape)}"
                )
        if self.g_idx is not None and not self.g_idx.is_meta:
            lowest, highest = int(self.g_idx.min()), int(self.g_idx.max())
            if lowest < 0 or highest >= self.groups:
                raise ValueError(f"g_idx: expected groups 0 to {self.groups - 1}, got {lowest} to {highest}")

    @property
    def groups(self) -> int:
        """Groups in a row."""
        return -(-self.shape[1] // self.group_size) if self.group_size else 1

    @property
    def row_blocks(self) -> int:
        """Blocks of rows that share scales; 1 where each row has its own."""
        return -(-self.shape[0] // self.block_rows) if self.block_rows else 1

    @property
    def tensors(self) -> dict[str, torch.Tensor]:
        """The tensors that are there, by field name: what is stored and what takes memory."""
        return {name: value for name in TENSORS if (value := getattr(self, name)) is not None}

    def to(self, device: torch.device | str) -> PackedWeight:
        """Return the weight on another device; on "meta" it is without its numbers."""
        moved: dict[str, Any] = {name: tensor.to(device) for name, tensor in self.tensors.items()}
        return replace(self, **moved)

    def rows(self, first: int, last: int) -> PackedWeight:
        """Return the weight of the rows from `first` to before `last` that are there; a block begins at `first`."""
        last, size = min(last, self.shape[0]), self.block_rows
        scales = slice(first // size, -(-last // size)) if size else slice(None)
        per_scale = {name: self.tensors[name][scales] for name in PER_SCALE if name in self.tensors}
        return replace(self, shape=(last - first, self.shape[1]), codes=self.codes[first:last], **per_scale)

    @property
    def nbytes(self) -> int:
        """Bytes of all its tensors."""
        return sum(tensor.nbytes for tensor in self.tensors.values())

    @property
    def effective_bits(self) -> float:
        """Bits a weight, scales and all else included."""
        return 8 * self.nbytes / (self.shape[0] * self.shape[1])

    @property
    def format(self) -> str:
        """What a report calls it: "int4 g64", "int8 per row", "mxfp4", "nvfp4", "fp8 e4m3 128x128"."""
        exponents = self.scales.dtype == torch.uint8
        if self.block_rows == 1:
            across = f"g{self.group_size}" if self.group_size else "per row"
        elif self.block_rows == 0 and self.group_size == 0:
            across = "per tensor"
        else:
            across = f"{self.block_rows or 'all'}x{self.group_size or 'all'}"
        if self.code == "e2m1":
            if exponents and (self.block_rows, self.group_size) == (1, MXFP4_BLOCK):
                return "mxfp4"
            if self.scales.dtype == torch.float8_e4m3fn and (self.block_rows, self.group_size) == (1, NVFP4_BLOCK):
                return "nvfp4"
            return f"fp4 {across}"
        if self.code in ("e4m3", "e5m2"):
            if exponents and (self.block_rows, self.group_size) == (1, MXFP4_BLOCK):
                return "mxfp8" if self.code == "e4m3" else "mxfp8 e5m2"
            return f"fp8 {self.code} {across}"
        if self.code == "nf4":
            return f"nf4 {across}"
        asymmetric = " asym" if self.zero_points is not None or self.offsets is not None else ""
        return f"int{self.bits} {across}{asymmetric}{' act-order' if self.g_idx is not None else ''}"


def pack_codes(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """uint8 [rows, columns] with values below 2**bits → uint8 [rows, ceil(columns * bits / 8)]: a row's bitstream,
    lowest bits first. 3, 5, 6 and 7 bit codes straddle bytes; what is left of the last byte is 0.
    """
    if bits == 8:
        return codes.contiguous()
    rows, columns = codes.shape
    per_run = 8 // bits if 8 % bits == 0 else 8  # codes that fill whole bytes
    run_bytes = per_run * bits // 8
    padded = torch.nn.functional.pad(codes, (0, -columns % per_run)).view(rows, -1, per_run)
    packed = torch.zeros(rows, padded.shape[1], run_bytes, dtype=torch.uint8, device=codes.device)
    for index in range(per_run):
        byte, shift = divmod(index * bits, 8)
        packed[..., byte] |= padded[..., index] << shift  # uint8 drops what does not fit
        if shift + bits > 8:
            packed[..., byte + 1] |= padded[..., index] >> (8 - shift)
    return packed.flatten(1)[:, : (columns * bits + 7) // 8].contiguous()


def unpack_codes(
    codes: torch.Tensor, bits: int, columns: int | None = None, dtype: torch.dtype = torch.uint8
) -> torch.Tensor:
    """Invert `pack_codes`: uint8 [rows, bytes] → `dtype` [rows, columns]; columns: all that fit by
    default."""
    fitting = codes.shape[1] * 8 // bits
    columns = fitting if columns is None else columns
    if bits == 8:
        return codes[:, :columns].to(dtype)
    rows = codes.shape[0]
    per_run = 8 // bits if 8 % bits == 0 else 8
    run_bytes = per_run * bits // 8
    runs = codes
    if codes.shape[1] % run_bytes:
        runs = torch.nn.functional.pad(codes, (0, -codes.shape[1] % run_bytes))
    runs = runs.reshape(rows, -1, run_bytes)
    values = torch.empty(rows, runs.shape[1], per_run, dtype=dtype, device=codes.device)
    for index in range(per_run):
        byte, shift = divmod(index * bits, 8)
        code = runs[..., byte] >> shift
        if shift + bits > 8:
            code = code | runs[..., byte + 1] << (8 - shift)
        values[..., index] = code & (2**bits - 1)
    values = values.flatten(1)
    return values if values.shape[1] == columns else values[:, :columns].contiguous()


def _plain(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
