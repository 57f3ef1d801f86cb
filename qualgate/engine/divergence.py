"""How far a changed model's predictions of given answers are from those of the model it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from qualgate.engine.likelihood import kl_divergence
from qualgate.engine.padded.engine import open_padded
from qualgate.engine.request import Event, Read, Request
from qualgate.errors import UsageError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

LOGITS_HELD = 2**28  # numbers: a gigabyte of float32, of the model as it was

Pair = tuple[Sequence[int], Sequence[int]]  # prompt, answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Divergence:
    """Over every position of every answer, teacher-forced."""

    kl: float  # mean KL(p_before || p_after), nats
    loss_increase: float  # of the answers' mean negative log-likelihood, nats; below 0 where the change helped
    top1_agreement: float  # share of positions where both would say the same token
    positions: int


class Reference:
    """What a model says of some answers, held to be compared with what it says once it is changed."""

    def __init__(self, model: PreTrainedModel, pairs: Sequence[Pair]) -> None:
        """Reads as many of the `pairs` as a gigabyte of logits allows, spread over all of them."""
        answered = [pair for pair in pairs if pair[1]]
        if not answered:
            raise UsageError("These cases have no answers, so nothing can be compared. Give cases with `answer`.")
        vocabulary = model.get_output_embeddings().weight.shape[0]  # type: ignore[union-attr]
        held = sum(len(answer) for _, answer in answered) * vocabulary
        every = -(-held // LOGITS_HELD)
        self.pairs = answered[::every]
        self._before = _logits(model, self.pairs)

    def against(self, model: PreTrainedModel) -> Divergence:
        """How far `model` is from the one this reference was made with."""
        total = loss = 0.0
        same = positions = 0
        after = _logits(model, self.pairs)
        for (_, answer), one, other in zip(self.pairs, self._before, after, strict=True):
            said = torch.tensor(list(answer), device=one.device)
            total += float(kl_divergence(one, other).sum())
            loss += float(_surprise(other, said) - _surprise(one, said))
            same += int((one.argmax(-1) == other.argmax(-1)).sum())
            positions += len(said)
        return Divergence(
            kl=total / positions,
            loss_increase=loss / positions,
            top1_agreement=same / positions,
            positions=positions,
        )


def _surprise(logits: torch.Tensor, said: torch.Tensor) -> torch.Tensor:
    return -logits.double().log_softmax(-1).gather(-1, said[:, None]).sum()


def _logits(model: PreTrainedModel, pairs: Sequence[Pair]) -> list[torch.Tensor]:
    """float32 [answer, vocabulary] of each pair. A model that is being changed is not laid out for packed passes."""
    found: list[list[torch.Tensor]] = [[] for _ in pairs]

    def take(event: Event) -> None:
        if isinstance(event, Read):
            for row, logits in zip(event.requests, event.logits, strict=True):
                found[row].append(logits)

    with open_padded(model) as engine:
        engine.run([Request(prompt=tuple(prompt), answer=tuple(answer)) for prompt, answer in pairs], None, take)
    return [torch.stack(rows) for rows in found]
