"""Continue an answer: from the tokens that a model predicts behind a draft to the tokens it says and the reason to
stop.

The result is what decoding one token at a time gives, whatever was drafted. Nothing follows the token that ends an
answer: an end token, the end of a stop text, the limit, a dead end, or the first token without finite logits.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from qualgate.engine.request import Reason, Request
from qualgate.engine.sampling import DEAD_END
from qualgate.engine.speculation.accept import accepted


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """One step of an answer. tokens: new tokens, none at a dead end; agreed: how many of them the draft had; reason:
    why the answer ends with the last one, or None."""

    tokens: tuple[int, ...]
    agreed: int
    reason: Reason | None


def advance(
    request: Request, generated: Sequence[int], offered: Sequence[int], would: Sequence[int], finite: Sequence[bool]
) -> Advance:
    """Return the next tokens of `request`, which has generated `generated` so far and is not over.

    offered: token ids of a draft, or of a given answer; would: token ids, one or more; would[i] is the model's token
    behind the first i offered ones, the last of which may be left out; finite: for each, whether its logits are finite.
    """
    outcome = accepted(offered[: len(would) - 1], would, request.stop_ids, request.max_new_tokens - len(generated))
    tokens: list[int] = list(outcome.tokens)
    reason: Reason | None = "eos" if outcome.ended else None
    if DEAD_END in tokens:
        tokens, reason = tokens[: tokens.index(DEAD_END)], "dead_end"
    if request.stops is not None:
        for count in range(1, len(tokens) + 1 - outcome.ended):
            if request.stops([*generated, *tokens[:count]]):
                tokens, reason = tokens[:count], "stop"
                break
    finite_tokens = list(
        finite[: len(tokens) + (reason == "dead_end")]
    )  # broken logits tell nothing about a constraint
    if False in finite_tokens:
        tokens, reason = tokens[: finite_tokens.index(False) + 1], "broken"
    if reason is None and len(generated) + len(tokens) >= request.max_new_tokens:
        reason = "length"
    agreements = [token == offered_token for token, offered_token in zip(tokens, offered, strict=False)]
    return Advance(tokens=tuple(tokens), agreed=[*agreements, False].index(False), reason=reason)
