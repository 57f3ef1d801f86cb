"""Accept the part of a draft that the model agrees with: exactly the tokens of decoding one at a time."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Accepted:
    """The new tokens of one row in a pass: the draft's first `count`, then the model's own next one.

    The own one is missing if a draft token ends the answer (then len(tokens) == count), so the keys and values of
    `count` draft tokens stay in any case. ended: the last token is a stop id.
    """

    count: int
    tokens: tuple[int, ...]
    ended: bool


def accepted(draft: Sequence[int], would: Sequence[int], stop_ids: Collection[int], room: int) -> Accepted:
    """The tokens said: what agrees, and the model's own next one, cut behind the first stop id and at `room` tokens.

    draft: token ids [drafted], none at all in a plain step
    would: token ids [drafted + 1]; would[i] is what the model says after the first i of the draft
    room: how many tokens the answer may still take; with none left nothing is said
    """
    assert len(would) == len(draft) + 1, f"{len(would)} tokens for a draft of {len(draft)}"
    tokens: list[int] = []
    for place, own in enumerate(would[: max(room, 0)]):
        tokens.append(own)
        agrees = place < len(draft) and draft[place] == own
        if own in stop_ids or not agrees:
            return Accepted(place + agrees, tuple(tokens), own in stop_ids)
    return Accepted(len(tokens), tuple(tokens), False)
