"""Pass the states of every row of a pass to the drafter; the target keeps those it needs."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from qualgate.engine.schedule import Part
from qualgate.engine.speculation.propose import Reader


def handed_over(reader: Reader, parts: Sequence[Part], states: torch.Tensor, read: torch.Tensor) -> torch.Tensor:
    """Hand `read` to `reader` and return the wanted states. states: [rows of all parts, width] → [wanted rows, width];
    read: [rows of all parts, …]."""
    first, wanted_states = 0, list[torch.Tensor]()
    for part in parts:
        last = first + len(part.tokens)
        reader.read(part.stream.index, part.stream.request.prompt, part.first, read[first:last])
        wanted_states.append(states[last - part.wants : last])
        first = last
    return states if sum(map(len, wanted_states)) == len(states) else torch.cat(wanted_states)
