"""How far a changed model's predictions of given answers are from those of the original model."""

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
    """A model's logits on some answers, for a comparison after the model was changed."""

    def __init__(self, model: PreTrainedModel, pairs: Sequence[Pair]) -> None:
        """Read as many of the `pairs` as fit into a gigabyte of logits, spread evenly over all of them."""
        answered = [pair for pair in pairs if pair[1]]
        if not answered:
            raise UsageError("These cases have no answers, so nothing can be compared. Give cases with `answer`.")
        vocabulary = model.get_output_embeddings().weight.shape[0]  # type: ignore[union-attr]
        numbers = sum(len(answer) for _, answer in answered) * vocabulary
        every = -(-numbers // LOGITS_HELD)
        self.pairs = answered[::every]
        self._before = _logits(model, self.pairs)

    def against(self, model: PreTrainedModel) -> Divergence:
        """Return how far `model` is from the one that made this reference."""
        total = loss = 0.0
        agreeing = positions = 0
        after = _logits(model, self.pairs)
        for (_, answer), logits_before, logits_after in zip(self.pairs, self._before, after, strict=True):
            answer_ids = torch.tensor(list(answer), device=logits_before.device)
            total += float(kl_divergence(logits_before, logits_after).sum())
            loss += float(_surprise(logits_after, answer_ids) - _surprise(logits_before, answer_ids))
            agreeing += int((logits_before.argmax(-1) == logits_after.argmax(-1)).sum())
            positions += len(answer_ids)
        return Divergence(
            kl=total / positions,
            loss_increase=loss / positions,
            top1_agreement=agreeing / positions,
            positions=positions,
        )


def _surprise(logits: torch.Tensor, answer_ids: torch.Tensor) -> torch.Tensor:
    return -logits.double().log_softmax(-1).gather(-1, answer_ids[:, None]).sum()


def _logits(model: PreTrainedModel, pairs: Sequence[Pair]) -> list[torch.Tensor]:
    """Return float32 [answer, vocabulary] for each pair, in padded batches: a model under change is not laid out for
    packed passes."""
    logits_by_pair: list[list[torch.Tensor]] = [[] for _ in pairs]

    def take(event: Event) -> None:
        if isinstance(event, Read):
            for row, logits in zip(event.requests, event.logits, strict=True):
                logits_by_pair[row].append(logits)

    with open_padded(model) as engine:
        engine.run([Request(prompt=tuple(prompt), answer=tuple(answer)) for prompt, answer in pairs], None, take)
    return [torch.stack(rows) for rows in logits_by_pair]
