"""A level of a cascade: what a draft model says behind a draft that was made for it.

If every token that a level offers has the law of its own model, given those before it, then the level above may take
that model's probabilities for `drawn_from`, and what it says has its own law in turn: by induction any number of
levels is lossless. The model's own last token belongs to the draft as much as those that it accepted. What is offered
may be cut to a count that was fixed before, and never because of what the tokens are. The probabilities of the level
below may not be used above: the tokens no longer come from them.
"""

from __future__ import annotations

import torch

from qualgate.engine.speculation.chance import Chance
from qualgate.engine.speculation.propose import Draft
from qualgate.engine.speculation.rules import RULES, block_verification, keyed, speculative_sampling

_OF_THEIR_MODEL = (keyed, speculative_sampling, block_verification)


def drafted(rule: str, own: torch.Tensor, below: Draft, chance: Chance, kind: str) -> Draft:
    """Return the draft model's tokens given the lower draft `below`, at least one; without a draft one drawn token.

    rule: a name of `RULES`; own: float64 [drafted below + 1, vocabulary], the model's probabilities, see
    `rules.Rule`; kind: of the draft, see `Draft`. ValueError for a rule that changes the distribution: its tokens
    have no known one.
    """
    if RULES[rule] not in _OF_THEIR_MODEL:
        raise ValueError(f"{rule}: changes the distribution, so a draft of it cannot be verified by another rule")
    accepted = RULES[rule](own, below.tokens, below.drawn_from, chance)
    return Draft(accepted.tokens, kind, 8, own[: len(accepted.tokens)])
