"""Which tile runs which product: a checked-in rule and table, nothing is tuned at run time.

How K is split belongs to a row's bits, so it follows from the weight alone (`splits`). Rows and tokens of a tile,
warps and stages do not, so they may follow the number of tokens (`tile`). Chosen by the static gate (no spills,
registers for several blocks an SM, bytes in flight); not yet timed on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

SIDE_BY_SIDE = (
    32  # tokens: up to here the splits run side by side and a second kernel adds them; beyond, one block walks them
)
STREAMING_MULTIPROCESSORS = 132  # H100, H200; on others the same split is merely less well filled
LARGEST_SPLIT = 8


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
    """Parts of K's `blocks`: `wanted`, or the table's, or the fewest that give every SM two tiles of four blocks."""
    found = wanted or SPLITS.get((out_features, in_features, code, bits))
    if found is None:
        tiles = -(-out_features // 128)
        found = -(-2 * STREAMING_MULTIPROCESSORS * 15 // 16 // tiles)  # 15/16: 256 tiles fill 264 places well enough
        found = max(1, min(found, blocks // 4, LARGEST_SPLIT))
    return -(-blocks // -(-blocks // found))  # no empty part


def tile(tokens: int, terms: int = 1) -> Tile:
    """The tile for `tokens` rows of x, each of `terms` terms in shared memory."""
    if tokens > SIDE_BY_SIDE:
        return Tile(rows=128, tokens=64, warps=8, stages=3 if terms == 1 else 2)
    return Tile(rows=128, tokens=16 if tokens <= 16 else 32, warps=4, stages=(4 if tokens <= 16 else 3) - (terms > 1))
