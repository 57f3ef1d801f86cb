"""What paged attention on GPUs makes of the rows of a pass, in plain torch: packs, each of which a program takes.

It is the same for every layer that has as many heads and sees as far: `prepare` keeps it for all of them, on the GPU.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

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
        made = self.packs.get((group, window))
        if made is None:
            made = packs_of(self.here, group, window)
            made = self.packs[group, window] = replace(made, numbers=made.numbers.to(self.table.device))
        return made


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
    """A run's pairs row by row, a row's `group` query heads together, cut into packs; where the places are."""
    sequence, position = places.sequence, places.position.long()
    starts = torch.nonzero(sequence[1:] != sequence[:-1])[:, 0] + 1
    starts = torch.cat([starts.new_zeros(1), starts])
    rows = torch.cat([starts[1:], starts.new_tensor([len(position)])]) - starts
    packs = -(-rows * group // PACK)
    run = torch.repeat_interleave(torch.arange(len(starts), device=starts.device), packs)
    number = torch.arange(len(run), device=starts.device) - (packs.cumsum(0) - packs)[run]
    first = position[starts[run] + number * PACK // group]  # positions ascend in a run
    last = position[starts[run] + torch.minimum((number * PACK + PACK - 1) // group, rows[run] - 1)]
    low = (first - window + 1).clamp(min=0) if window else torch.zeros_like(first)
    spans = last // SPAN - low // SPAN + 1
    return Packs(torch.stack([starts[run], rows[run], number, spans], 1).int(), int(spans.max()))
