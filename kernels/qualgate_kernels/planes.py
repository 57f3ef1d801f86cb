"""The layout the GPU kernels read: codes in K-planes, tile after tile, made once at load from a PackedWeight.

A set of int16 words holds one code for each of several *planes*; plane j of a K-block is `plane` neighbouring
in_features, block * block_k + j * plane + (0 .. plane - 1). A shift and a mask then turn a tile of words into the
codes of one plane, two a 32-bit register, just as the tensor core's left operand wants them: no interleaving, no byte
permutation, no trip through shared memory. K order is free as long as the activations are read in the same order.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import torch

from qualgate_kernels import configs
from qualgate_kernels.dequantize import scales_float
from qualgate_kernels.packed import PackedWeight, pack_codes, unpack_codes

ROWS = 64  # out_features of one tile: the rows of one warp group's product
PADDED_ROWS = 128  # out_features are padded to whole pairs of tiles, so that a kernel may take two at once
WORDS_AND_PLANES = {2: (1, 8), 3: (3, 16), 4: (1, 4), 8: (1, 2)}  # bits: int16 words a set, codes a set
BLOCK_8BIT = 128  # in_features of a block where activations are 8 bits too: their codes are multiplied as they are
SMALLEST_PLANE = 16  # the tensor core's own K


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Prepared:
    """A weight [N, K] laid out for the kernels, or, where `twin_because` says why, left to the torch twin.

    words:      int16 [row tiles, K-blocks, words a set, 64, plane]; with 8-bit activations int8
                [row tiles, K-blocks, 1, 64, 128], integer codes as signed numbers
    scales:     int32 [K-blocks or groups, words, padded N]: the scales of a block's groups, `scale_bits` each, lowest
                first; None where a row has one scale, which is in row_scales
    zeros:      the same of zero points, 16 bits each
    row_scales: float32 [padded N], multiplied at the end; None = 1
    order:      int64 [K]: in_feature of the layout → in_feature of x (act-order); None = as they come
    like:       the PackedWeight it was made from, without its tensors (on the meta device)
    unchanged:  its small tensors, as they came
    """

    like: PackedWeight
    activations: str = ""
    plane: int = 0
    splits: int = 1
    words: torch.Tensor | None = None
    scales: torch.Tensor | None = None
    zeros: torch.Tensor | None = None
    row_scales: torch.Tensor | None = None
    order: torch.Tensor | None = None
    unchanged: dict[str, torch.Tensor]
    twin: PackedWeight | None = None
    twin_because: str = ""

    @property
    def planes(self) -> int:
        """Codes of one K-position in a set of words: planes of a block."""
        return 1 if self.activations else WORDS_AND_PLANES[self.like.bits][1]

    @property
    def block_k(self) -> int:
        """in_features of one step of the kernel's loop."""
        return self.plane * self.planes

    @property
    def blocks(self) -> int:
        """K-blocks of a row, the last one filled up."""
        return -(-self.like.shape[1] // self.block_k)

    @property
    def grouped(self) -> bool:
        """Whether scales vary along K; else `row_scales` has them."""
        return self.scales is not None

    @property
    def group_size(self) -> int:
        """in_features that share a scale; all of them where a row has one."""
        return self.like.group_size or self.like.shape[1]

    @property
    def scale_bits(self) -> int:
        """Of one scale in `scales`: 8, 16 or 32."""
        return _scale_bits(self.like, self.block_k)

    @property
    def zero_bits(self) -> int:
        """Of one zero point in `zeros`: 16 or 32."""
        return _zero_bits(self.like, self.block_k)

    @property
    def device(self) -> torch.device:
        """The device of its tensors, or of its twin's."""
        tensor = self.twin.codes if self.twin is not None else self.words
        assert tensor is not None
        return tensor.device

    @property
    def scale_kind(self) -> str:
        """What a scale's bits spell: "fp32", "bf16", "fp16", "e8m0" or "e4m3"."""
        return _KINDS[self.like.scales.dtype] if self.scale_bits < 32 else "fp32"

    @property
    def nbytes(self) -> int:
        """Bytes held, the twin included where there is one."""
        tensors = (self.words, self.scales, self.zeros, self.row_scales, self.order, *self.unchanged.values())
        return sum(tensor.nbytes for tensor in tensors if tensor is not None) + (self.twin.nbytes if self.twin else 0)


_KINDS = {
    torch.float32: "fp32",
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.uint8: "e8m0",
    torch.float8_e4m3fn: "e4m3",
}


def uncovered(packed: PackedWeight, activations: str = "") -> str:
    """Return why the kernels leave `packed` to the torch twin; "" if they do not. It reads values too, so call it
    once."""
    if activations not in ("", "int8", "fp8", "fp8 g128"):
        return f"activations {activations!r}"
    if packed.code == "nf4":
        return "nf4 codes"
    if packed.bits not in WORDS_AND_PLANES:
        return f"{packed.bits}-bit codes"
    if packed.offsets is not None:
        return "offsets"
    if max(packed.shape) >= 2**24:
        return f"shape {list(packed.shape)}"
    if packed.g_idx is not None and (reason := _uneven(packed)):
        return reason
    if activations and (reason := _no_partner(packed, activations)):
        return reason
    if not activations and not _plane(packed):
        return f"groups of {packed.group_size}"
    return _odd_numbers(packed)


def _no_partner(packed: PackedWeight, activations: str) -> str:
    """Return why no kernel multiplies these weights with 8-bit inputs; "" if one does."""
    if packed.code != {"int8": "int", "fp8": "e4m3"}[activations.split()[0]] or packed.bits != 8:
        return f"{packed.format} weights with {activations} activations"
    if packed.zero_points is not None:
        return f"zero points with {activations} activations"
    if packed.group_size % BLOCK_8BIT:
        return f"groups of {packed.group_size} with {activations} activations"
    if activations == "fp8 g128" and packed.g_idx is not None:
        return "act-order with fp8 g128 activations"
    return ""


def _odd_numbers(packed: PackedWeight) -> str:
    """Return which numbers of a weight no kernel multiplies; "" if there are none."""
    if packed.zero_points is not None:
        lowest, highest = int(packed.zero_points.min()), int(packed.zero_points.max())
        if lowest < 0 or highest > 2**packed.bits:
            return f"zero points from {lowest} to {highest}"
    if packed.code in ("e4m3", "e5m2"):
        magnitudes = packed.codes & 0x7F
        if bool((magnitudes >= (0x7F if packed.code == "e4m3" else 0x7C)).any()):
            return "weights that are NaN or infinite"
    if not bool(scales_float(packed).isfinite().all()):
        return "scales that are NaN or infinite"
    return ""


def left_to_twin(packed: PackedWeight, activations: str, because: str) -> Prepared:
    """`packed` as it is, for the torch twin."""
    return Prepared(like=packed.to("meta"), activations=activations, unchanged={}, twin=packed, twin_because=because)


def lay_out(packed: PackedWeight, activations: str = "", splits: int | None = None) -> Prepared:
    """`packed` in the kernels' layout, on its own device; left to the torch twin where `uncovered` says so.

    splits: parts of K summed by themselves, then in order; None = by the table. They are part of the result's bits, so
    they never follow the number of rows
    """
    if reason := uncovered(packed, activations):
        return left_to_twin(packed, activations, reason)
    plane = BLOCK_8BIT if activations else _plane(packed)
    order = _order(packed)
    codes = unpack_codes(packed.codes, packed.bits, packed.shape[1])
    if order is not None:
        codes = codes[:, order]
    unchanged = {name: tensor for name, tensor in packed.tensors.items() if name in ("tensor_scale", "g_idx")}
    row_scales = scales = zeros = None
    planes = 1 if activations else WORDS_AND_PLANES[packed.bits][1]
    if packed.group_size == 0 and packed.zero_points is None:
        unchanged["scales"] = packed.scales
        row_scales = _padded_rows(_by_row(scales_float(packed), packed))[:, 0].contiguous()
    else:
        bits = _scale_bits(packed, plane * planes)
        raw = packed.scales.float() if bits == 32 and packed.scales.dtype.itemsize < 4 else packed.scales
        if packed.scales.dtype == torch.uint8 and bits == 32:
            raw = packed.scales.view(torch.float8_e8m0fnu).float()
        scales = _pack_fields(_by_row(raw, packed), packed, plane * planes, bits)
        if packed.zero_points is not None:
            kept_zeros = _by_row(packed.zero_points.to(torch.int16), packed)
            zeros = _pack_fields(kept_zeros, packed, plane * planes, _zero_bits(packed, plane * planes))
        if packed.tensor_scale is not None:
            factor = 1 / packed.tensor_scale if packed.tensor_divides else packed.tensor_scale
            row_scales = factor.expand(-(-packed.shape[0] // PADDED_ROWS) * PADDED_ROWS).contiguous()
    blocks = -(-packed.shape[1] // (plane * planes))
    return Prepared(
        like=packed.to("meta"),
        activations=activations,
        plane=plane,
        splits=configs.splits(*packed.shape, packed.code, packed.bits, blocks, splits),
        words=_pack_words(codes, packed, plane, activations),
        scales=scales,
        zeros=zeros,
        row_scales=row_scales,
        order=order,
        unchanged=unchanged,
    )


def restore(prepared: Prepared) -> PackedWeight:
    """Return the PackedWeight that `prepared` was made from, to the bit."""
    if prepared.twin is not None:
        return prepared.twin
    like, words = prepared.like, prepared.words
    assert words is not None
    codes = _unpack_words(words, like, prepared.plane, prepared.activations)
    if prepared.order is not None:
        codes = codes[:, prepared.order.argsort()]
    tensors: dict[str, Any] = {"codes": pack_codes(codes, like.bits), **prepared.unchanged}
    if prepared.scales is not None:
        bits = prepared.scale_bits
        scales = _unpack_fields(prepared.scales, like, prepared.block_k, bits)
        if bits == 32:
            scales = scales.view(torch.float32)
            if like.scales.dtype == torch.uint8:
                scales = scales.to(torch.float8_e8m0fnu).view(torch.uint8)
            else:
                scales = scales.to(like.scales.dtype)
        else:
            scales = scales.to(torch.uint8 if bits == 8 else torch.int16).view(like.scales.dtype)
        tensors["scales"] = scales[:: like.block_rows or like.shape[0]].contiguous()
    if prepared.zeros is not None and like.zero_points is not None:
        zeros = _unpack_fields(prepared.zeros, like, prepared.block_k, _zero_bits(like, prepared.block_k))
        tensors["zero_points"] = zeros.to(like.zero_points.dtype)[:: like.block_rows or like.shape[0]].contiguous()
    return replace(like, **tensors)


def concatenate(weights: list[PackedWeight]) -> PackedWeight:
    """Weights of one format over the same in_features as one, out_features after out_features (q, k, v; gate, up).

    A row's product does not change by it. ValueError names what differs; weights that share one scale among all rows,
    or whose blocks of rows would straddle a seam, cannot be joined.
    """
    first = weights[0]
    for weight in weights[1:]:
        for name in ("code", "bits", "group_size", "block_rows", "tensor_divides"):
            if getattr(weight, name) != getattr(first, name):
                raise ValueError(f"{name}: expected {getattr(first, name)!r} in all, got {getattr(weight, name)!r}")
        if weight.shape[1] != first.shape[1]:
            raise ValueError(f"in_features: expected {first.shape[1]} in all, got {weight.shape[1]}")
        if weight.tensors.keys() != first.tensors.keys():
            raise ValueError(f"tensors: expected {', '.join(first.tensors)} in all, got {', '.join(weight.tensors)}")
        for name, tensor in weight.tensors.items():
            if tensor.dtype != getattr(first, name).dtype:
                raise ValueError(f"{name}: expected {getattr(first, name).dtype} in all, got {tensor.dtype}")
        for name in ("g_idx", "tensor_scale"):
            if getattr(first, name) is not None and not torch.equal(getattr(first, name), getattr(weight, name)):
                raise ValueError(f"{name}: expected the same in all")
    if len(weights) > 1 and (
        first.block_rows == 0 or any(weight.shape[0] % first.block_rows for weight in weights[:-1])
    ):
        raise ValueError(f"block_rows: expected blocks that end where a weight ends, got {first.block_rows or 'all'}")
    joined: dict[str, Any] = {
        name: torch.cat([getattr(weight, name) for weight in weights])
        for name in first.tensors
        if name not in ("g_idx", "tensor_scale")
    }
    return replace(first, shape=(sum(weight.shape[0] for weight in weights), first.shape[1]), **joined)


def _plane(packed: PackedWeight) -> int:
    """in_features of a plane, from shape and format alone; 0 if the groups fit none. The largest that pads K little:
    fewer, longer products between waits. One product lies in one group, and blocks and groups nest."""
    planes, size, columns = WORDS_AND_PLANES[packed.bits][1], packed.group_size, packed.shape[1]
    fitting = [
        plane
        for plane in (64, 32, SMALLEST_PLANE)
        if not size or (size % plane == 0 and (size % (plane * planes) == 0 or plane * planes % size == 0))
    ]
    largest = {2: 32, 3: 16}.get(packed.bits, 64)  # many planes, or three words a set, take as many registers
    fitting = [plane for plane in fitting if plane <= largest]
    tight = [plane for plane in fitting if -columns % (plane * planes) <= columns // 16]
    return tight[0] if tight else fitting[-1] if fitting else 0


def _order(packed: PackedWeight) -> torch.Tensor | None:
    """Act-order: the in_features sorted by group, None if they already are."""
    if packed.g_idx is None:
        return None
    order = packed.g_idx.argsort(stable=True)
    return None if torch.equal(order, torch.arange(order.numel(), device=order.device)) else order


def _uneven(packed: PackedWeight) -> str:
    """Return the reason if groups of a g_idx differ in size; "" if they do not."""
    assert packed.g_idx is not None
    counts = packed.g_idx.bincount(minlength=packed.groups)
    return "" if bool((counts == packed.shape[1] // packed.groups).all()) else "act-order with uneven groups"


def _by_row(per_scale: torch.Tensor, packed: PackedWeight) -> torch.Tensor:
    """[row_blocks, groups] → [N, groups]."""
    rows = torch.arange(packed.shape[0], device=per_scale.device) // (packed.block_rows or packed.shape[0])
    return per_scale.view(torch.uint8)[rows].view(per_scale.dtype) if per_scale.element_size() == 1 else per_scale[rows]


def _padded_rows(by_row: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.pad(by_row, (0, 0, 0, -by_row.shape[0] % PADDED_ROWS))


def _pack_words(codes: torch.Tensor, packed: PackedWeight, plane: int, activations: str) -> torch.Tensor:
    """uint8 [N, K] → the words of the layout. Padding is code 0, which meets activations that are 0."""
    words, planes = (1, 1) if activations else WORDS_AND_PLANES[packed.bits]
    if packed.code == "int" and packed.bits == 8:
        codes = codes ^ 0x80  # two's complement of code - 128
    codes = torch.nn.functional.pad(codes, (0, -codes.shape[1] % (plane * planes), 0, -codes.shape[0] % PADDED_ROWS))
    codes = codes.view(codes.shape[0] // ROWS, ROWS, -1, planes, plane).permute(0, 2, 3, 1, 4)  # tile block plane row k
    if activations:
        return codes.contiguous().view(torch.int8)
    packed_words = torch.zeros(*codes.shape[:2], words, ROWS, plane, dtype=torch.int16, device=codes.device)
    for plane_index in range(planes):
        for word, source, count, shift in _places(packed.bits, plane_index):
            piece = (codes[:, :, plane_index] >> source & (1 << count) - 1).to(torch.int32) << shift
            packed_words[:, :, word] |= piece.to(torch.int16)  # keeps the low 16 bits
    return packed_words


def _unpack_words(words: torch.Tensor, like: PackedWeight, plane: int, activations: str) -> torch.Tensor:
    """Invert `_pack_words`: the layout's words → uint8 codes [N, K]. like: the weight that was packed."""
    tiles, blocks = words.shape[:2]
    if activations:
        codes = words.view(torch.uint8)
    else:
        planes = WORDS_AND_PLANES[like.bits][1]
        codes = torch.zeros(tiles, blocks, planes, ROWS, plane, dtype=torch.uint8, device=words.device)
        for plane_index in range(planes):
            for word, source, count, shift in _places(like.bits, plane_index):
                piece = words[:, :, word].to(torch.int32) >> shift & (1 << count) - 1
                codes[:, :, plane_index] |= (piece << source).to(torch.uint8)
    codes = codes.permute(0, 3, 1, 2, 4).reshape(tiles * ROWS, -1)[: like.shape[0], : like.shape[1]].contiguous()
    return codes ^ 0x80 if like.code == "int" and like.bits == 8 else codes


def _places(bits: int, place: int) -> list[tuple[int, int, int, int]]:
    """Return where the code of plane `place` lies: (word, lowest bit of the code, bits, shift in the word), piece by
    piece.

    Three words hold fifteen 3-bit codes, and the sixteenth in the bit each has left.
    """
    if bits != 3:
        return [(0, 0, bits, bits * place)]
    if place < 15:
        return [(place // 5, 0, 3, 3 * (place % 5))]
    return [(word, word, 1, 15) for word in range(3)]


def _scale_bits(packed: PackedWeight, block_k: int) -> int:
    """Bits of a scale in the layout: its own where a block's scales then fill whole 32-bit words (which the copy to
    shared memory needs), else those of float32."""
    own_bits = 8 * packed.scales.element_size()
    return own_bits if _per_block(packed, block_k) * own_bits % 32 == 0 else 32


def _zero_bits(packed: PackedWeight, block_k: int) -> int:
    return 16 if _per_block(packed, block_k) % 2 == 0 else 32


def _per_block(packed: PackedWeight, block_k: int) -> int:
    """Groups in a K-block; 1 if the group is the longer one."""
    return max(1, block_k // packed.group_size) if packed.group_size else 1


def _pack_fields(by_row: torch.Tensor, packed: PackedWeight, block_k: int, bits: int) -> torch.Tensor:
    """[N, groups] → int32 [K-blocks, words, padded N]: the values' own `bits`, or their numbers in 32."""
    count = _per_block(packed, block_k)
    if by_row.dtype == torch.int16 and bits == 32:
        by_row = by_row.to(torch.int32)
    raw = by_row.view({8: torch.uint8, 16: torch.int16, 32: torch.int32}[bits]).to(torch.int64) & (1 << bits) - 1
    raw = torch.nn.functional.pad(raw, (0, -raw.shape[1] % count, 0, -raw.shape[0] % PADDED_ROWS))
    raw = raw.view(raw.shape[0], -1, max(1, count * bits // 32), 32 // bits)
    shifts = torch.arange(0, 32, bits, device=raw.device)
    return (raw << shifts).sum(-1).to(torch.int32).permute(1, 2, 0).contiguous()


def _unpack_fields(fields: torch.Tensor, like: PackedWeight, block_k: int, bits: int) -> torch.Tensor:
    """Return each value's bits as a number, int32 [N, groups]; those of float32 as they are."""
    shifts = torch.arange(0, 32, bits, device=fields.device)
    raw = fields.permute(2, 0, 1).unsqueeze(-1).to(torch.int64) >> shifts & (1 << bits) - 1
    return raw.flatten(1)[: like.shape[0], : like.groups].to(torch.int32).contiguous()
