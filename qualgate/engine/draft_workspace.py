"""Memory that drafts need besides weights and KV cache while they are made and verified. Needs no torch."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.engine.draft_arms import OWN_WEIGHTS, levels
from qualgate.engine.drafting import MOST
from qualgate.records import Speculation

LOGIT, CHANCE = 4, 8  # bytes: logits are float32, what a rule draws from float64


def draft_workspace(speculation: Speculation, holders: Sequence[int]) -> int:
    """Return the bytes for one sequence, beyond a plain step of its target.

    The logits of one pass: a verification has those of all drafted tokens, a draft's own pass those of its row and of
    what is drafted for it; passes follow each other, so the largest counts. A rule that draws from probabilities adds
    those of each draft, which stay until it is verified, and the target's. holders: vocabulary sizes of the target and
    of each level's own model, 0 without one.
    """
    passes, chances, verifier, row, longest = list[int](), 0, holders[0], 0, MOST
    for level, holder in zip(levels(speculation), holders[1:], strict=True):
        tokens = min(level.tokens or MOST, longest)
        passes.append((row + tokens) * verifier)
        if level.draft.kind == "head":
            passes.append(verifier)
            chances += tokens * verifier
        elif level.draft.kind in OWN_WEIGHTS:
            verifier, row, longest = holder, 1, tokens - 1  # the target's own row is a plain step's
            passes.append(verifier)
            chances += tokens * verifier
    if speculation.rule == "keyed":
        chances = 0
    else:
        chances += ((speculation.tokens or MOST) + 1) * holders[0]
    return LOGIT * max(passes) + CHANCE * chances
