"""How far a variant's distribution is from the baseline's, at each token of a baseline's answer that it read.

Both are given by the inputs of their output heads. With a large vocabulary, logits are most of a small model's work and
memory: there the drift kernel combines both heads and never stores the baseline's logits. It needs heads that are a
float matrix (and a bias) with nothing after them; other heads, and small vocabularies, use the baseline's logits a few
positions at a time, with the KL in float64. The choice depends on the two heads alone, and a position's numbers on its
own states alone. The kernel sums in float32 within a tile of the vocabulary: its KL is within some 1e-6 nats of the
other's.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from qualgate.engine.artifact import LARGE, BaselineAnswers
from qualgate.engine.head import OutputHead
from qualgate.engine.likelihood import compared
from qualgate.engine.request import Read
from qualgate.errors import UsageError
from qualgate_kernels.dispatch import drift
from qualgate_kernels.drift import Head

KERNEL_FROM = LARGE  # below, logits take a twentieth of a small model's time, and KL is exact
LOGITS_AT_ONCE = 2**22  # numbers: 16 MB of float32


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
    likeliest = read.logits.argmax(-1)
    if _kernel_takes(head, baseline):
        return _by_kernel(read, states, head, baseline, likeliest)
    columns, top = [], []
    at_once = max(1, LOGITS_AT_ONCE // head.vocabulary)
    for states_chunk, variant_logits, answer in zip(
        *(tensor.split(at_once) for tensor in (states, read.logits, read.answer)), strict=True
    ):
        baseline_logits = baseline.logits_of(states_chunk)
        columns.append(compared(baseline_logits, variant_logits, answer))
        top.append(baseline_logits.argmax(-1))
    kl, given = (torch.cat(parts) for parts in zip(*columns, strict=True))
    return Weighed(likeliest, given, kl, torch.cat(top))


def _kernel_takes(head: OutputHead, baseline: BaselineAnswers) -> bool:
    plain = head.whole and not head.after and head.plain
    return plain and head.vocabulary >= KERNEL_FROM and baseline.head is not None and not baseline.after


def _by_kernel(
    read: Read, states: torch.Tensor, head: OutputHead, baseline: BaselineAnswers, likeliest: torch.Tensor
) -> Weighed:
    """Weigh by the kernel, which computes both models' logits in pieces from the states."""
    assert baseline.head is not None
    baseline_tensors = baseline.head.tensors
    p = Head(hidden=states, weight=baseline_tensors["weight"], bias=baseline_tensors.get("bias"))
    q = Head(hidden=read.states.contiguous(), weight=head.tensors["weight"], bias=head.tensors.get("bias"))
    weighed = drift(p, q, labels=read.answer)
    assert weighed.logprob is not None
    return Weighed(likeliest, weighed.logprob[1], weighed.kl[0], weighed.top[0])
