"""Teacher forcing: reading the baseline's own answer, and how far two models' predictions of it are apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache

from qualgate.engine.cache import new_cache
from qualgate.engine.forward import Decoder, pad, split
from qualgate.engine.generate import PREFILL_TOKENS

LOGITS_AT_ONCE = 2**22  # numbers: 16 MB of float32
FLOAT64_AT_ONCE = 2**20  # numbers: 8 MB in each of a few float64 tensors


@dataclass(frozen=True, slots=True)
class Reading:
    """Rows that have read prompt + answer[:-1] in one pass.

    rows: [R] indices into the prompts; answer: [R, longest] token ids; offered: [R] their lengths;
    logits: [R, longest, vocabulary], at position t having read answer[:t], or None of a lean reading; hidden:
    [R, longest, width], what entered the output head there; stop: [R] slot after the prompt; start: [R] first slot of
    the prompt; cache: None unless asked for.
    """

    rows: torch.Tensor
    answer: torch.Tensor
    offered: torch.Tensor
    logits: torch.Tensor | None
    hidden: torch.Tensor
    start: torch.Tensor
    stop: int
    cache: Cache | None


def read_answers(
    decoder: Decoder,
    prompts: Sequence[Sequence[int]],
    answers: Sequence[Sequence[int]],
    *,
    keep_cache: bool,
    lean: bool = False,
) -> Iterator[Reading]:
    """Read every prompt with its answer, in parts that fit in memory.

    lean: without logits, which the hidden states give, unless this model does something unknown to get its own.

    Prompts are padded on the left and answers on the right, so that all answers start in the same slot. No token of
    a row ever attends to the padding behind it.
    """
    device = decoder.device
    known = False
    lengths_of = [len(prompt) for prompt in prompts], [len(answer) for answer in answers]
    for part in _parts(*lengths_of, 1 if lean else decoder.vocabulary):
        prompt_ids, lengths = pad([prompts[row] for row in part], device)
        width, longest = prompt_ids.shape[1], max(len(answers[row]) for row in part)
        answer = torch.tensor(
            [[*answers[row], *[0] * (longest - len(answers[row]))] for row in part], device=device
        )  # fmt: skip
        offered = torch.tensor([len(answers[row]) for row in part], device=device)
        # The last token of the longest answer predicts nothing that was said.
        token_ids = torch.cat([prompt_ids, answer[:, :-1]], dim=1)
        slots = torch.arange(token_ids.shape[1], device=device)
        start = width - lengths
        mask = (slots >= start[:, None]) & (slots < (width + offered)[:, None])
        cache = new_cache(decoder.config) if keep_cache else None
        step = decoder.step(token_ids, mask, cache, keep=longest, lean=lean)
        if lean and not known:
            known = decoder.knows(step)
            if not known:
                yield from read_answers(decoder, prompts, answers, keep_cache=keep_cache)
                return
        logits = None if lean else step.logits
        yield Reading(torch.tensor(part, device=device), answer, offered, logits, step.hidden, start, width, cache)


def _parts(prompts: list[int], answers: list[int], vocabulary: int) -> Iterator[list[int]]:
    """Rows to read together: bounded in tokens and, for the longest answer among them, in logits."""
    for part in split([prompt + answer for prompt, answer in zip(prompts, answers, strict=True)], PREFILL_TOKENS):
        for within in split([answers[row] for row in part], max(1, LOGITS_AT_ONCE // vocabulary)):
            yield [part[index] for index in within]


def kl_divergence(baseline_logits: torch.Tensor, variant_logits: torch.Tensor) -> torch.Tensor:
    """KL(p_baseline || p_variant) at each position, in nats, float64 [positions], over the full vocabulary.

    Both: [positions, vocabulary]; a few at a time are widened. Zero where the logits are equal; never negative.
    """
    positions, vocabulary = variant_logits.shape
    chunk = max(1, FLOAT64_AT_ONCE // vocabulary)
    parts = []
    for start in range(0, positions, chunk):
        stop = min(start + chunk, positions)
        log_p = baseline_logits[start:stop].double().log_softmax(-1)
        log_q = variant_logits[start:stop].double().log_softmax(-1)
        parts.append((log_p.exp() * (log_p - log_q)).sum(-1).clamp_(min=0.0))
    return torch.cat(parts) if parts else variant_logits.new_zeros(0, dtype=torch.float64)
