"""Which tile runs which product: a checked-in rule and table, nothing is tuned at run time.

How K is split belongs to a row's bits, so it follows from the weight alone (`splits`). Rows and tokens of a tile,
warps and stages do not, so they may follow the number of tokens (`tile`). Chosen by the static gate (no spills,
registers for several blocks an SM, bytes in flight); not yet timed on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

SIDE_BY_SIDE = 32  # tokens up to which splits run side by side and a second kernel adds them; else one block walks all
STREAMING_MULTIPROCESSORS = 132  # H100, H200; on others the same split is merely less well filled
LARGEST_SPLIT = 8
SHARED, SHARED_WIDE = 84 * 1024, 100 * 1024  # bytes of stages in flight; a wide tile has an SM to itself


@dataclass(frozen=True, slots=True)
class Tile:
    """rows: out_features, tokens: rows of x, warps and stages as Triton counts them."""

    rows: int
    tokens: int
    warps: int
    stages: int


# (out_features, in_features, code, bits) → splits, where timing on a GPU found better than the rule.
SPLITS: dict[tuple[int, int, str, int], int] = {}


def splits(out_features: int, in_features: int, code: str, bits: int, blocks: int, wanted: int | None = None) -> int:
    """Return into how many parts a product splits the `blocks` of K.

    That is `wanted`, or the table's number, or the fewest parts that give every SM two tiles of four blocks.
    """
    parts = wanted or SPLITS.get((out_features, in_features, code, bits))
    if parts is None:
        tiles = -(-out_features // 128)
        parts = -(-2 * STREAMING_MULTIPROCESSORS * 15 // 16 // tiles)  # 15/16: 256 tiles fill 264 places well enough
        parts = max(1, min(parts, blocks // 4, LARGEST_SPLIT))
    return -(-blocks // -(-blocks // parts))  # no empty part


def tile(tokens: int, block_k: int, bits: int, terms: int, capability: int) -> Tile:
    """Return the tile for `tokens` rows of x, each of `terms` terms, and K-blocks of `block_k` codes: as many stages,
    up to four, as leave room in shared memory for two blocks an SM where the tile is small.

    Where registers or tensor memory would not do, tiles are smaller: three terms triple the operands; Ampere (80)
    holds in registers what Hopper's tensor cores read from shared memory; Blackwell (100) keeps every plane's weights
    in tensor memory, and int3 and int2 have many planes.
    """
    rows, width = 128, 64 if tokens > SIDE_BY_SIDE else 32 if tokens > 16 else 16
    if terms > 1:
        width = min(width, 16 if capability < 90 else 32)
    if capability >= 100 and bits < 4:
        rows, width = 64 if terms > 1 else 128, 16
    warps = 8 if width == 64 or (width == 32 and terms > 1) else 4
    stage = rows * block_k * bits // 8 + width * block_k * 2 * terms
    stages = 1 + max(1, min(3, (SHARED_WIDE if width == 64 else SHARED) // stage))
    if capability < 90 and (width == 32 or terms > 1):
        warps, stages = 8, 3 if bits == 2 and terms == 1 else 2
    elif capability >= 100 and width == 64 and bits == 8:
        stages = 2
    return Tile(rows, width, warps, stages)
