"""Penalties on tokens that occurred before, as in vLLM and transformers.

They apply to logits, before temperature and truncation:

- repetition r: for a token of the prompt or the answer, a logit above 0 is divided by r, another multiplied by it
  (Keskar et al. 1909.05858, section 4.1, with the case of negative logits added by transformers'
  `RepetitionPenaltyLogitsProcessor`; vLLM's `apply_penalties` likewise).
- frequency f: f times the token's count in the answer is subtracted; presence p: p is subtracted if the token occurs
  there at all (OpenAI's definition, which vLLM follows: neither counts the prompt).
Counts are computed anew for every row from the text before it, drafted tokens included: a rejected token leaves no
trace. Only the columns of tokens that occur are touched, in float32, element by element, so batching does not change a
row's bits.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from qualgate.records import Sampling


def penalized(
    logits: torch.Tensor, prompt: Sequence[int], generated: Sequence[int], offered: Sequence[int], sampling: Sampling
) -> torch.Tensor:
    """Return a copy, float32 [n, vocabulary]: row i with the penalties of `prompt`, `generated` and the first i of
    `offered`.

    logits: float32 [n, vocabulary]; offered: token ids [n - 1]
    """
    adjusted, vocabulary = logits.clone(), logits.shape[-1]
    tokens = torch.tensor(sorted({*prompt, *generated, *offered}), device=logits.device)
    tokens = tokens[tokens < vocabulary]  # a prompt may hold what a head has no entry for
    if not len(tokens):
        return adjusted
    counts = _counts(tokens, generated, offered)
    of_prompt = torch.isin(tokens, torch.tensor(list(prompt), device=logits.device))
    token_logits = logits[:, tokens]
    if (repetition := sampling.repetition_penalty) != 1.0:
        repeated = torch.where(token_logits > 0, token_logits / repetition, token_logits * repetition)
        token_logits = torch.where((counts > 0) | of_prompt, repeated, token_logits)
    token_logits = token_logits - sampling.frequency_penalty * counts
    adjusted[:, tokens] = token_logits - sampling.presence_penalty * (counts > 0)
    return adjusted


def _counts(tokens: torch.Tensor, generated: Sequence[int], offered: Sequence[int]) -> torch.Tensor:
    """Return int64 [n, tokens]: how often each token occurs in the answer before each row."""
    columns = {token: column for column, token in enumerate(tokens.tolist())}
    count, rows_of = [0] * len(columns), []
    for token in generated:
        if token in columns:
            count[columns[token]] += 1
    rows_of.append(count)
    for token in offered:
        count = [*count]
        if token in columns:
            count[columns[token]] += 1
        rows_of.append(count)
    return torch.tensor(rows_of, device=tokens.device)
