"""How far a changed model's predictions of given answers are from those of the model it was."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from qualgate.engine.forward import open_decoder
from qualgate.engine.likelihood import kl_divergence, read_answers
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
    """float32 [answer, vocabulary] of each pair."""
    found: dict[int, torch.Tensor] = {}
    with open_decoder(model) as decoder:
        for reading in read_answers(decoder, *zip(*pairs, strict=True), keep_cache=False):
            assert reading.logits is not None
            for place, row in enumerate(reading.rows.tolist()):
                found[row] = reading.logits[place, : int(reading.offered[place])].clone()
    return [found[row] for row in range(len(pairs))]
