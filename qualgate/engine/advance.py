"""How an answer goes on: from what a model would say behind a draft to what it says, and why it is over then.

What is said is what one token at a time would have given, whatever was offered: behind the token that ends an answer
nothing is, be it an end token, the end of a text, the limit, a dead end, or the first whose logits mean nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qualgate.engine.request import Reason, Request
from qualgate.engine.sampling import DEAD_END
from qualgate.speculation.accept import accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """tokens: said, one or more, none at a dead end; agreed: how many of them were offered; reason: why the last is the
    last, or None."""

    tokens: tuple[int, ...]
    agreed: int
    reason: Reason | None


def advance(
    request: Request, said: Sequence[int], offered: Sequence[int], would: Sequence[int], finite: Sequence[bool]
) -> Advance:
    """What `request`, which has said `said` and is not over, says next.

    offered: token ids of a draft, or of an answer that was read; would: token ids, one or more; would[i] is what the
    model says after the first i that were offered, of which the last may be left out; finite: of each, whether its
    logits are.
    """
    got = accepted(offered[: len(would) - 1], would, request.stop_ids, request.max_new_tokens - len(said))
    tokens: list[int] = list(got.tokens)
    reason: Reason | None = "eos" if got.ended else None
    if DEAD_END in tokens:
        tokens, reason = tokens[: tokens.index(DEAD_END)], "dead_end"
    if request.stops is not None:
        for count in range(1, len(tokens) + 1 - got.ended):
            if request.stops([*said, *tokens[:count]]):
                tokens, reason = tokens[:count], "stop"
                break
    whole = list(finite[: len(tokens) + (reason == "dead_end")])  # what means nothing says of no constraint anything
    if False in whole:
        tokens, reason = tokens[: whole.index(False) + 1], "broken"
    if reason is None and len(said) + len(tokens) >= request.max_new_tokens:
        reason = "length"
    same = [one == other for one, other in zip(tokens, offered, strict=False)]
    return Advance(tokens=tuple(tokens), agreed=[*same, False].index(False), reason=reason)
