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
    """Return the accepted tokens and the model's own next one, cut behind the first stop id and at `room` tokens.

    draft: token ids [drafted], empty in a plain step; would: token ids [drafted + 1], would[i] is the model's token
    after the first i of the draft; room: how many tokens the answer may still take, with 0 nothing is accepted.
    """
    assert len(would) == len(draft) + 1, f"{len(would)} tokens for a draft of {len(draft)}"
    tokens: list[int] = []
    for index, token in enumerate(would[: max(room, 0)]):
        tokens.append(token)
        agrees = index < len(draft) and draft[index] == token
        if token in stop_ids or not agrees:
            return Accepted(index + agrees, tuple(tokens), token in stop_ids)
    return Accepted(len(tokens), tuple(tokens), False)
