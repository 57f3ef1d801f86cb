"""How far a variant's distribution is from the baseline's, at each token of a baseline's answer that it read.

The variant's logits are those that its own token is chosen from. The baseline's are computed again from the states that
it left, a few positions at a time, and never stored. A position's numbers depend on its own states alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from qualgate.engine.artifact import BaselineAnswers
from qualgate.engine.head import OutputHead
from qualgate.engine.request import Read
from qualgate.errors import UsageError
from qualgate_kernels.dispatch import kl
from qualgate_kernels.kl import Divergences

LOGITS_AT_ONCE = 2**23  # numbers: 32 MB of float32


@dataclass(frozen=True, slots=True)
class Weighed:
    """Drift at the positions of a `Read`, [n] each.

    likeliest: the variant's likeliest token, its answer unless tokens are drawn; given: log-prob in nats of the
    answer's own token, float64; kl: KL(baseline || variant) in nats, float64; top: the baseline's likeliest token.
    """

    likeliest: torch.Tensor
    given: torch.Tensor
    kl: torch.Tensor
    top: torch.Tensor


def weigh(read: Read, head: OutputHead, baseline: BaselineAnswers) -> Weighed:
    """Return the variant's drift at the positions of `read`. head: the variant's. Raises UsageError if the two
    vocabularies differ."""
    if head.vocabulary != baseline.vocabulary:
        raise UsageError(
            f"The variant's vocabulary has {head.vocabulary} entries, the baseline's {baseline.vocabulary}: their "
            "distributions cannot be compared. Use checkpoints with the same output head."
        )
    starts = [baseline.starts[row] for row in read.requests]
    state_rows = torch.tensor(starts) + torch.tensor(list(read.positions))
    states = baseline.states[state_rows.to(baseline.states.device)]
    at_once = max(1, LOGITS_AT_ONCE // head.vocabulary)
    parts = [
        kl(baseline.logits_of(states_chunk), logits, answer)
        for states_chunk, logits, answer in zip(
            *(tensor.split(at_once) for tensor in (states, read.logits, read.answer)), strict=True
        )
    ]
    found = Divergences(*map(torch.cat, zip(*parts, strict=True)))
    return Weighed(read.logits.argmax(-1), found.logprobs, found.kl, found.tokens)
