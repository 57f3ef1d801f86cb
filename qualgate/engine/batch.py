"""Turn the parts of a pass into tensors, all rows side by side."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch

from qualgate_kernels.paged import Places
from qualgate_kernels.slots import SLOTS


class _Text(Protocol):
    @property
    def blocks(self) -> Sequence[int]: ...


class Rows(Protocol):
    """Rows of one text in a pass."""

    @property
    def stream(self) -> _Text:
        """The text whose `blocks` hold its keys and values, in order."""
        ...

    @property
    def first(self) -> int:
        """Position of the first row in the text."""
        ...

    @property
    def tokens(self) -> Sequence[int]:
        """One token per row."""
        ...

    @property
    def wants(self) -> int:
        """How many of the last rows need logits."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Batch:
    """A pass as tensors. token_ids: int64 [rows]; places: where each row stands; slots: int64 [rows], as
    `Places.slots`; wanted: int64, rows whose states are needed, ascending; blocks: number of blocks per layer."""

    token_ids: torch.Tensor
    places: Places
    slots: torch.Tensor
    wanted: torch.Tensor
    blocks: int

    @property
    def positions(self) -> torch.Tensor:
        """Position of each row in its sequence, int64 [rows]."""
        return self.places.position.long()


def batch(parts: Sequence[Rows], blocks: int, *, whole: bool = False) -> Batch:
    """Return the rows of `parts` in order. blocks: size of the pool; whole: return the state of every row."""
    token_ids, sequence, position, slots, wanted, table = [], [], [], [], [], []
    width = max(len(part.stream.blocks) for part in parts)
    for index, part in enumerate(parts):
        count, own_blocks = len(part.tokens), part.stream.blocks
        wanted += range(len(token_ids) + (0 if whole else count - part.wants), len(token_ids) + count)
        token_ids += part.tokens
        sequence += [index] * count
        positions = range(part.first, part.first + count)
        position += positions
        slots += [own_blocks[place // SLOTS] * SLOTS + place % SLOTS for place in positions]
        table += [*own_blocks, *[0] * (width - len(own_blocks))]
    return Batch(
        token_ids=_int64(token_ids),
        places=Places(
            table=_int32(table).view(len(parts), width), sequence=_int32(sequence), position=_int32(position)
        ),
        slots=_int64(slots),
        wanted=_int64(wanted) if wanted else torch.empty(0, dtype=torch.int64),
        blocks=blocks,
    )


# torch looks at every number of a list for its type, which takes a step of one row longer than an array does.
def _int64(numbers: list[int]) -> torch.Tensor:
    return torch.frombuffer(array("q", numbers), dtype=torch.int64)


def _int32(numbers: list[int]) -> torch.Tensor:
    return torch.frombuffer(array("i", numbers), dtype=torch.int32)
