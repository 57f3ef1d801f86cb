"""A PackedWeight as the C kernels stream it: blocks of 64 out_features, codes of two in_features a lane.

`c/weight.h` says what lies where. Only the order of the codes changes, and what pads them: `restore` gives the
PackedWeight back to the bit.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch

from qualgate_kernels.dequantize import scales_float
from qualgate_kernels.packed import PackedWeight, pack_codes, unpack_codes
from qualgate_kernels.pages import zeros

BLOCK, STRIP, SEGMENT_MAX = 64, 16, 128
CODES = {"int": 0, "e2m1": 1, "e4m3": 2, "e5m2": 3}
SCALE_KINDS = {torch.float32: 0, torch.bfloat16: 1, torch.float16: 2, torch.uint8: 3}
# bits → the planes codes are cut in, lowest first, and the pairs of in_features a unit holds: its vectors are full.
PLANES = {2: (2,), 3: (2, 1), 4: (4,), 5: (4, 1), 6: (4, 2), 8: (8,)}
PAIRS = {2: 8, 3: 16, 4: 4, 5: 16, 6: 8, 8: 2}
MOST_PADDING = 2.0  # times the codes; beyond it (groups of a few weights) the torch twin serves
AT_ONCE = 2**22  # codes rearranged at a time, which bounds the memory of it


class Unsupported(ValueError):
    """A weight that the C kernels do not cover; the torch twin does."""


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Prepared:
    """A weight in the kernels' layout. `rest` is the PackedWeight it was made of, with empty codes on "meta".

    codes: uint8, scales: SCALE_KINDS [blocks, groups, 64], zero_points: uint8 and offsets: float32 like scales,
    gather: int32 [segments * segment], the in_feature at each place or -1; None: as they lie
    segment: in_features summed before the scale is applied; per_group: segments of a group
    """

    rest: PackedWeight
    codes: torch.Tensor
    scales: torch.Tensor
    zero_points: torch.Tensor | None
    offsets: torch.Tensor | None
    gather: torch.Tensor | None
    segment: int
    segments: int
    per_group: int

    @property
    def shape(self) -> tuple[int, int]:
        """[out_features, in_features]"""
        return self.rest.shape

    @property
    def nbytes(self) -> int:
        """Return the bytes that a product reads; what only `restore` needs comes on top."""
        tensors = (self.codes, self.scales, self.zero_points, self.offsets, self.gather)
        return sum(tensor.nbytes for tensor in tensors if tensor is not None)


def arrange(packed: PackedWeight) -> Prepared:
    """Lay a weight out (on the CPU). Unsupported names what the kernels do not cover."""
    if packed.codes.device.type != "cpu":
        raise Unsupported(f"the CPU kernels take weights on the CPU, this one is on {packed.codes.device}")
    if packed.code not in CODES or packed.bits not in PAIRS:
        raise Unsupported(f"{packed.format}: the CPU kernels have no {packed.bits}-bit {packed.code} codes")
    columns = packed.shape[1]
    unit = 2 * PAIRS[packed.bits]
    places, longest = _places(packed)
    per_group = -(-longest // SEGMENT_MAX)
    segment = -(-longest // (per_group * unit)) * unit
    segments = packed.groups * per_group
    if segments * segment > MOST_PADDING * columns + SEGMENT_MAX:
        raise Unsupported(f"{packed.format}: groups of {longest} would be padded to {per_group * segment} in_features")
    gather = torch.full((packed.groups, per_group * segment), -1, dtype=torch.int32)
    for group, members in enumerate(places):
        gather[group, : len(members)] = members
    gather = gather.flatten()
    zero_points = _zero_points(packed)
    return Prepared(
        rest=replace(packed, codes=packed.codes.to("meta")),
        codes=_arranged(packed, gather),
        scales=_blocks(_scales(packed), packed, padding=1 if packed.scales.dtype == torch.uint8 else 0),
        zero_points=None if zero_points is None else _blocks(zero_points, packed, padding=0),
        offsets=None if packed.offsets is None else _blocks(packed.offsets.float(), packed, padding=0),
        gather=None if torch.equal(gather, torch.arange(columns, dtype=torch.int32)) else gather,
        segment=segment,
        segments=segments,
        per_group=per_group,
    )


def restore(prepared: Prepared) -> PackedWeight:
    """Return the PackedWeight that `arrange` was given, equal to the bit."""
    description = prepared.rest
    rows, columns = description.shape
    blocks = -(-rows // BLOCK)
    codes = torch.empty((rows, columns), dtype=torch.uint8)
    gather = prepared.gather
    used = slice(None) if gather is None else gather >= 0
    targets = slice(None) if gather is None else gather[used].long()
    for first, last in _slices(blocks, prepared.segments * prepared.segment):
        unpacked = _unwoven(prepared.codes.view(blocks, -1)[first:last], description.bits)
        block_codes = codes[first * BLOCK : last * BLOCK]
        block_codes[:, targets] = unpacked[: block_codes.shape[0], used]
    return replace(description, codes=pack_codes(codes, description.bits))


def _places(packed: PackedWeight) -> tuple[list[torch.Tensor], int]:
    """Return the in_features of each group, ascending, and the size of the largest group."""
    columns = torch.arange(packed.shape[1], dtype=torch.int32)
    if packed.g_idx is None:
        places = list(columns.split(packed.group_size or packed.shape[1]))
    else:
        by_group = packed.g_idx.sort(stable=True)
        group_sizes = torch.bincount(packed.g_idx, minlength=packed.groups).tolist()
        places = list(columns[by_group.indices].split(group_sizes))
    return places, max(map(len, places))


def _scales(packed: PackedWeight) -> torch.Tensor:
    """Scales [row_blocks, groups] in the narrowest kind that holds them: the product reads them with every weight."""
    exponents = packed.scales.dtype == torch.uint8 and packed.tensor_scale is None
    if exponents and bool(((packed.scales > 0) & (packed.scales < 255)).all()):  # 0 is subnormal, 255 NaN
        return packed.scales
    exact = scales_float(packed)
    for narrow in (torch.bfloat16, torch.float16):
        if torch.equal(exact.to(narrow).float(), exact):
            return exact.to(narrow)
    return exact


def _zero_points(packed: PackedWeight) -> torch.Tensor | None:
    if packed.zero_points is None:
        return None
    lowest, highest = int(packed.zero_points.min()), int(packed.zero_points.max())
    if lowest < 0 or highest > min(2**packed.bits, 255):
        raise Unsupported(f"{packed.format}: zero points from {lowest} to {highest} leave the range of the codes")
    return packed.zero_points.to(torch.uint8)


def _blocks(per_scale: torch.Tensor, packed: PackedWeight, padding: int) -> torch.Tensor:
    """Spread values [row_blocks, groups] to every row: [blocks, groups, 64]; rows beyond the last get `padding`."""
    rows = packed.shape[0]
    per_row = per_scale[torch.arange(rows) // (packed.block_rows or rows)]
    padded = torch.full((-(-rows // BLOCK) * BLOCK, packed.groups), padding, dtype=per_scale.dtype)
    padded[:rows] = per_row
    return padded.view(-1, BLOCK, packed.groups).transpose(1, 2).contiguous()


def _arranged(packed: PackedWeight, gather: torch.Tensor) -> torch.Tensor:
    """Return the codes in the order of the C kernels, as bytes. gather: the in_feature at each place, -1 for padding
    (code 0)."""
    rows, columns = packed.shape
    blocks = -(-rows // BLOCK)
    if packed.bits in (2, 4, 8) and torch.equal(gather, torch.arange(columns, dtype=torch.int32)):
        return _as_they_lie(packed)
    places, padded = gather.clamp(min=0).long(), gather < 0
    arranged = zeros((blocks, len(gather) // (2 * PAIRS[packed.bits]) * _vectors(packed.bits) * BLOCK * 4), torch.uint8)
    for first, last in _slices(blocks, max(len(gather), columns)):
        codes = unpack_codes(packed.codes[first * BLOCK : last * BLOCK], packed.bits, columns)
        if packed.code in ("e4m3", "e5m2"):
            _refuse_not_finite(codes, packed)
        codes = codes[:, places]
        codes[:, padded] = 0
        codes = torch.nn.functional.pad(codes, (0, 0, 0, (last - first) * BLOCK - codes.shape[0]))
        arranged[first:last] = _woven(codes, packed.bits).view(last - first, -1)
    return arranged.flatten()


def _as_they_lie(packed: PackedWeight) -> torch.Tensor:
    """The same for codes of 2, 4 or 8 bits at the places where they lie, from a word of 32 bits to a word.

    What `_woven` puts into a word are codes of neighbouring in_features, the even ones in the lower half.
    """
    if packed.code in ("e4m3", "e5m2"):
        _refuse_not_finite(packed.codes, packed)
    rows, nbytes = packed.codes.shape
    blocks, bits = -(-rows // BLOCK), packed.bits
    arranged = zeros((blocks, nbytes // 4, BLOCK), torch.int32)
    codes = torch.nn.functional.pad(packed.codes, (0, 0, 0, -rows % BLOCK)).contiguous()
    if bits == 8:  # four in_features of a lane lie 16 bytes apart
        lanes = codes.view(blocks, BLOCK // STRIP, STRIP, nbytes // 4, 4)
        arranged.view(torch.uint8).view(blocks, nbytes // 4, BLOCK // STRIP, 4, STRIP).copy_(
            lanes.permute(0, 3, 1, 4, 2)
        )
        return arranged.view(torch.uint8).flatten()
    words = codes.view(torch.int32).view(blocks, BLOCK, nbytes // 4)
    even, odd = (_gathered_fields(half, bits) for half in (words, words >> bits))
    return arranged.copy_((even | odd << 16).transpose(1, 2)).view(torch.uint8).flatten()


def _gathered_fields(words: torch.Tensor, bits: int) -> torch.Tensor:
    """Return every second field of `bits` bits of int32 words, the lowest first, in the lower 16 bits."""
    width = bits
    while width <= 16:
        mask = sum((2**width - 1) << at for at in range(0, 32, 2 * width))
        words = (words | words >> width // 2 if width > bits else words) & (mask if mask < 2**31 else mask - 2**32)
        width *= 2
    return words


def _refuse_not_finite(codes: torch.Tensor, packed: PackedWeight) -> None:
    """NaN and infinite weights: 0 * NaN of a padded place, or of a row's zero, is not what the twin gives."""
    magnitude = codes & 0x7F
    if bool((magnitude == 0x7F).any() if packed.code == "e4m3" else (magnitude >= 0x7C).any()):
        raise Unsupported(f"{packed.format}: weights that are not finite")


def _slices(blocks: int, columns: int) -> list[tuple[int, int]]:
    """Return ranges of blocks, [first, last), small enough to convert at once."""
    step = max(1, AT_ONCE // (BLOCK * columns))
    return [(first, min(first + step, blocks)) for first in range(0, blocks, step)]


def _vectors(bits: int) -> int:
    """Of 64 bytes, in a unit of one strip."""
    return sum(-(-PAIRS[bits] * width // 16) for width in PLANES[bits])


def _woven(codes: torch.Tensor, bits: int) -> torch.Tensor:
    """Return codes [blocks * 64, places] as bytes in the order of weight.h."""
    pairs = PAIRS[bits]
    units = codes.view(-1, BLOCK // STRIP, STRIP, codes.shape[1] // (2 * pairs), pairs, 2)  # block strip lane unit p h
    if bits == 8:
        return units.permute(0, 3, 1, 4, 5, 2).flatten()
    units = units.permute(0, 3, 1, 4, 2, 5).to(torch.int16)  # block unit strip pair lane half
    vectors, lower_bits = [], 0
    for width in PLANES[bits]:
        plane = (units >> lower_bits) & (2**width - 1)
        lower_bits += width
        fields_per_word = 16 // width
        for part in plane.split(fields_per_word, dim=3):
            shifts = torch.arange(part.shape[3], dtype=torch.int16).view(-1, 1, 1) * width
            vectors.append((part << shifts).sum(3, dtype=torch.int16))
    return torch.stack(vectors, 3).view(torch.uint8).flatten()


def _unwoven(woven: torch.Tensor, bits: int) -> torch.Tensor:
    """Invert `_woven`: uint8 [blocks, bytes] → codes [blocks * 64, places]."""
    blocks, pairs, count = woven.shape[0], PAIRS[bits], _vectors(bits)
    if bits == 8:
        units = woven.view(blocks, -1, BLOCK // STRIP, pairs, 2, STRIP)
        return units.permute(0, 2, 5, 1, 3, 4).reshape(blocks * BLOCK, -1)
    vectors = woven.view(torch.int16).view(blocks, -1, BLOCK // STRIP, count, STRIP, 2)
    codes = torch.zeros((*vectors.shape[:3], pairs, STRIP, 2), dtype=torch.int16)
    lower_bits = vector = 0
    for width in PLANES[bits]:
        fields_per_word = 16 // width
        for first in range(0, pairs, fields_per_word):
            for pair in range(first, min(first + fields_per_word, pairs)):
                codes[:, :, :, pair] |= (
                    (vectors[:, :, :, vector] >> (pair - first) * width) & (2**width - 1)
                ) << lower_bits
            vector += 1
        lower_bits += width
    return codes.permute(0, 2, 4, 1, 3, 5).reshape(blocks * BLOCK, -1).to(torch.uint8)
