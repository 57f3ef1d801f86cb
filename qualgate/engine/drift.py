"""How far a variant's distribution is from the baseline's, at each token of a baseline's answer that it read.

Both are known by what entered their output heads. Where a vocabulary is large, logits are most of a small model's work
and of anyone's memory: there both heads meet in the drift kernel, which never holds logits of the baseline. It takes
heads that are a matrix (and a bias) of floats, with nothing done after them; all others, and small vocabularies, take
the baseline's logits a few positions at a time, and the KL in float64. Which way depends on the two heads alone, never
on the rows, and a position's numbers depend on its own states alone. The kernel sums in float32 within a tile of the
vocabulary: its KL is within some 1e-6 nats of the other way's.
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
    """Of the positions of a `Read`, [n] each.

    likeliest: the variant's likeliest token, which is what it says unless tokens are drawn; given: the log-prob in nats
    of the answer's own token, float64; kl: KL(baseline || variant) in nats, float64; top: the baseline's likeliest.
    """

    likeliest: torch.Tensor
    given: torch.Tensor
    kl: torch.Tensor
    top: torch.Tensor


def weigh(read: Read, head: OutputHead, baseline: BaselineAnswers) -> Weighed:
    """head: the variant's. Raises UsageError when the two vocabularies differ."""
    if head.vocabulary != baseline.vocabulary:
        raise UsageError(
            f"The variant's vocabulary has {head.vocabulary} entries, the baseline's {baseline.vocabulary}: their "
            "distributions cannot be compared. Use checkpoints with the same output head."
        )
    starts = [baseline.starts[row] for row in read.requests]
    at = torch.tensor(starts) + torch.tensor(list(read.positions))
    states = baseline.states[at.to(baseline.states.device)]
    likeliest = read.logits.argmax(-1)
    if _kernel_takes(head, baseline):
        return _by_kernel(read, states, head, baseline, likeliest)
    found, top = [], []
    at_once = max(1, LOGITS_AT_ONCE // head.vocabulary)
    for here, mine, answer in zip(*(of.split(at_once) for of in (states, read.logits, read.answer)), strict=True):
        theirs = baseline.logits_of(here)
        found.append(compared(theirs, mine, answer))
        top.append(theirs.argmax(-1))
    kl, own = (torch.cat(parts) for parts in zip(*found, strict=True))
    return Weighed(likeliest, own, kl, torch.cat(top))


def _kernel_takes(head: OutputHead, baseline: BaselineAnswers) -> bool:
    plain = head.whole and not head.after and head.plain
    return plain and head.vocabulary >= KERNEL_FROM and baseline.head is not None and not baseline.after


def _by_kernel(
    read: Read, states: torch.Tensor, head: OutputHead, baseline: BaselineAnswers, likeliest: torch.Tensor
) -> Weighed:
    assert baseline.head is not None
    theirs = baseline.head.tensors
    p = Head(hidden=states, weight=theirs["weight"], bias=theirs.get("bias"))
    q = Head(hidden=read.states.contiguous(), weight=head.tensors["weight"], bias=head.tensors.get("bias"))
    found = drift(p, q, labels=read.answer)
    assert found.logprob is not None
    return Weighed(likeliest, found.logprob[1], found.kl[0], found.top[0])
