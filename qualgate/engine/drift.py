"""What a variant says at each token of a baseline's answer, and how far its distribution is from the baseline's.

Both are known by what entered their output heads. Where a vocabulary is large, logits are most of a small model's work
and of anyone's memory: there both heads meet in the drift kernel, which never holds logits. It takes heads that are a
matrix (and a bias) of floats, with nothing done after them; all others, and small vocabularies, take logits a few
positions at a time, and the KL of these in float64. Which way depends on the two heads alone, never on the rows, and
a position's numbers depend on its own hidden states alone: by the kernel to the bit, by logits where torch has one
thread (with more, its product of floats may round a row by where it stands). The kernel sums in float32 within a tile
of the vocabulary: its KL is within some 1e-6 nats of the other way's.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch

from qualgate.engine.artifact import LARGE, BaselineAnswers
from qualgate.engine.forward import Decoder
from qualgate.engine.likelihood import LOGITS_AT_ONCE, Reading, kl_divergence
from qualgate.engine.sampling import Draws, Said, greedy
from qualgate.errors import UsageError
from qualgate_kernels.dispatch import drift
from qualgate_kernels.drift import Head

KERNEL_FROM = LARGE  # below, logits take a twentieth of a small model's time, and KL is exact
POSITIONS = 64  # met at a time, fewer where the vocabulary is large: padded, so that every product has the same shape


@dataclass(frozen=True, slots=True)
class Weighed:
    """Of a reading's rows, [rows, longest]; what stands behind a row's answer means nothing.

    said: what the variant would say; likeliest: its likeliest token, which is what it says unless tokens are drawn;
    given: the log-prob in nats of the answer's own token, float64; kl: KL(baseline || variant) in nats, float64;
    top: the baseline's likeliest token.
    """

    said: Said
    likeliest: torch.Tensor
    given: torch.Tensor
    kl: torch.Tensor
    top: torch.Tensor


Columns = tuple[torch.Tensor, ...]
"""tokens, log-probs, margins, finite of a Said, then given, kl, top: [positions] each."""


def weigh(reading: Reading, decoder: Decoder, baseline: BaselineAnswers, draws: Draws | None = None) -> Weighed:
    """draws: None says what is likeliest. Raises UsageError when the two vocabularies differ."""
    if decoder.vocabulary != baseline.vocabulary:
        raise UsageError(
            f"The variant's vocabulary has {decoder.vocabulary} entries, the baseline's {baseline.vocabulary}: their "
            "distributions cannot be compared. Use checkpoints with the same output head."
        )
    places = torch.arange(reading.answer.shape[1], device=reading.answer.device)
    inside = places < reading.offered[:, None]
    starts = torch.tensor([baseline.starts[row] for row in reading.rows.tolist()], device=places.device)
    at = (starts[:, None] + places)[inside]
    if reading.logits is None and _kernel_takes(decoder, baseline):
        columns = _by_kernel(reading.hidden[inside], reading.answer[inside], baseline.states[at], decoder, baseline)
    else:
        columns = _by_logits(reading, inside, at, decoder, baseline)
    likeliest = columns[0]
    if draws is not None:
        columns = (*_drawn(reading, inside, places, decoder, draws), *columns[4:])
    columns = (*columns[:4], likeliest, *columns[4:])
    shaped = [torch.zeros(inside.shape, dtype=column.dtype, device=places.device) for column in columns]
    for whole, column in zip(shaped, columns, strict=True):
        whole[inside] = column
    return Weighed(Said(*shaped[:4]), *shaped[4:])


def _kernel_takes(decoder: Decoder, baseline: BaselineAnswers) -> bool:
    plain = type(decoder.head) is torch.nn.Linear and decoder.head.weight.is_floating_point() and not decoder.after
    return plain and decoder.vocabulary >= KERNEL_FROM and baseline.head is not None and not baseline.after


def _by_kernel(
    hidden: torch.Tensor, answer: torch.Tensor, states: torch.Tensor, decoder: Decoder, baseline: BaselineAnswers
) -> Columns:
    assert baseline.head is not None
    head = dict(decoder.head.named_parameters())
    p = Head(hidden=states, weight=baseline.head["weight"], bias=baseline.head.get("bias"))
    q = Head(hidden=hidden, weight=head["weight"], bias=head.get("bias"))
    found = drift(p, q, labels=answer)
    assert found.logprob is not None
    return (
        found.top[1].clamp(min=0), found.best[1].float(), found.margin[1].float(), found.top[1] >= 0,
        found.logprob[1], found.kl[0], found.top[0],
    )  # fmt: skip


def _by_logits(
    reading: Reading, inside: torch.Tensor, at: torch.Tensor, decoder: Decoder, baseline: BaselineAnswers
) -> Columns:
    answer = reading.answer[inside]
    parts: list[Columns] = []
    for start, logits in _logits(reading, inside, decoder):
        here = slice(start, start + len(logits))
        theirs = baseline.logits_of(baseline.states[at[here]])
        given = logits.double().log_softmax(-1).gather(-1, answer[here, None])[:, 0].clamp_(max=0.0)
        parts.append((*greedy(logits), given, kl_divergence(theirs, logits), theirs.argmax(-1)))
    return tuple(torch.cat(columns) for columns in zip(*parts, strict=True))


def _drawn(reading: Reading, inside: torch.Tensor, places: torch.Tensor, decoder: Decoder, draws: Draws) -> Said:
    """What the variant draws at each position: from logits, wherever the drift is measured."""
    rows, positions = reading.rows[:, None].expand(inside.shape)[inside], places.expand(inside.shape)[inside]
    parts = [
        draws.said(logits, rows[start : start + len(logits)], positions[start : start + len(logits)])
        for start, logits in _logits(reading, inside, decoder)
    ]
    return Said(*(torch.cat(columns) for columns in zip(*parts, strict=True)))


def _logits(reading: Reading, inside: torch.Tensor, decoder: Decoder) -> Iterator[tuple[int, torch.Tensor]]:
    """(first position, float32 logits from there on), a few positions at a time."""
    known = reading.hidden[inside] if reading.logits is None else reading.logits[inside]
    at_once = max(1, min(POSITIONS, LOGITS_AT_ONCE // decoder.vocabulary))
    for start in range(0, len(known), at_once):
        here = known[start : start + at_once]
        if reading.logits is None:
            padded = torch.nn.functional.pad(here, (0, 0, 0, at_once - len(here)))
            here = decoder.logits(padded)[: len(here)]
        yield start, here
