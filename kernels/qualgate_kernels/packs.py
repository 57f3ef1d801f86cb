"""Packs of rows for paged attention on GPUs: each is one program's work.

It is the same for every layer that has as many heads and sees as far: `prepare` keeps it for all of them, on the GPU.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from itertools import groupby

import torch

from qualgate_kernels.paged import Places

PACK = 16  # pairs of a program: the least that tensor cores take
SPAN = 256  # positions of a partial result


@dataclass(frozen=True, slots=True, eq=False)
class Packs:
    """The packs of a pass. numbers: int32 [packs, 4], of each the run's first row, the run's rows, which of the run's
    packs it is, and how many spans its rows see; of a run without rows there is nothing to see. spans: the most of
    them, or more."""

    numbers: torch.Tensor
    spans: int


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class PreparedPlaces(Places):
    """Places on a GPU, and all that is made of them there. Made by `prepare`; the record is fixed, packs come to it.

    here: as they were given; count: blocks that they may point to; row_slots: `Places.slots`; packs: by (query heads
    for each head of keys, window), made when a layer first asks
    """

    here: Places
    count: int
    row_slots: torch.Tensor
    packs: dict[tuple[int, int], Packs] = field(default_factory=dict)

    @property
    def slots(self) -> torch.Tensor:
        """See `Places`."""
        return self.row_slots

    def check(self, count: int, device: torch.device) -> None:
        """See `Places`: the numbers were looked at before they went to the GPU, which would be waited for."""
        if count < self.count or self.table.device != device:
            raise ValueError(
                f"places: prepared for {self.count} blocks on {self.table.device}, got {count} on {device}"
            )

    def packs_of(self, group: int, window: int) -> Packs:
        """See `packs_of`; on the GPU."""
        packs = self.packs.get((group, window))
        if packs is None:
            packs = packs_of(self.here, group, window)
            packs = self.packs[group, window] = replace(packs, numbers=packs.numbers.to(self.table.device))
        return packs


def prepare(places: Places, count: int, device: torch.device) -> PreparedPlaces:
    """Places that `Places.check` has seen with so many blocks, for all layers of a pass on `device`."""
    return PreparedPlaces(
        table=places.table.to(device),
        sequence=places.sequence.to(device),
        position=places.position.to(device),
        row_slots=places.slots.to(device),
        here=places,
        count=count,
    )


def packs_of(places: Places, group: int, window: int) -> Packs:
    """Return a run's pairs row by row, a row's `group` query heads together, cut into packs; on the CPU.

    In Python: a dozen operations of torch took ten times as long for a pass of few rows.
    """
    sequence, position = places.sequence.tolist(), places.position.tolist()
    numbers, most_spans, start = array("i"), 0, 0
    for _, run in groupby(sequence):
        rows = len(list(run))
        for number in range(-(-rows * group // PACK)):
            first = position[start + number * PACK // group]  # positions ascend in a run
            last = position[start + min((number * PACK + PACK - 1) // group, rows - 1)]
            low = max(0, first - window + 1) if window else 0
            spans = last // SPAN - low // SPAN + 1
            numbers.extend((start, rows, number, spans))
            most_spans = max(most_spans, spans)
        start += rows
    return Packs(torch.frombuffer(numbers, dtype=torch.int32).view(-1, 4), most_spans)
