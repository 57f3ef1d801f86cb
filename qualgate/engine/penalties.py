"""Penalties on tokens that stood in a text before, as vLLM and transformers have them.

On logits, before the temperature and before anything is cut:

- repetition r: of a token of the prompt or of the answer, a logit above 0 is divided by r, another multiplied by it
  (Keskar et al. 1909.05858, section 4.1, with the case of negative logits that transformers'
  `RepetitionPenaltyLogitsProcessor` added; vLLM's `apply_penalties` likewise).
- frequency f: f times as often as the token stands in the answer is taken off; presence p: p is taken off a token that
  stands there at all (OpenAI's definition, which vLLM follows: the prompt counts for neither).

Counts are made afresh for every row from the text before it, drafted tokens included: nothing is kept that a token
which was rejected could have changed. Only the few columns of tokens that are there are touched, in float32, one number
by itself, so a row's bits are its own.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from qualgate.records import Sampling


def penalized(
    logits: torch.Tensor, prompt: Sequence[int], said: Sequence[int], offered: Sequence[int], sampling: Sampling
) -> torch.Tensor:
    """float32 [n, vocabulary], a copy: row i with the penalties of `prompt`, `said` and the first i of `offered`.

    logits: float32 [n, vocabulary]; offered: token ids [n - 1]
    """
    found, vocabulary = logits.clone(), logits.shape[-1]
    tokens = torch.tensor(sorted({*prompt, *said, *offered}), device=logits.device)
    tokens = tokens[tokens < vocabulary]  # a prompt may hold what a head has no entry for
    if not len(tokens):
        return found
    counts = _counts(tokens, said, offered)
    of_prompt = torch.isin(tokens, torch.tensor(list(prompt), device=logits.device))
    here = logits[:, tokens]
    if (repetition := sampling.repetition_penalty) != 1.0:
        repeated = torch.where(here > 0, here / repetition, here * repetition)
        here = torch.where((counts > 0) | of_prompt, repeated, here)
    here = here - sampling.frequency_penalty * counts
    found[:, tokens] = here - sampling.presence_penalty * (counts > 0)
    return found


def _counts(tokens: torch.Tensor, said: Sequence[int], offered: Sequence[int]) -> torch.Tensor:
    """int64 [n, tokens]: how often each stands in the answer before each row."""
    columns = {token: column for column, token in enumerate(tokens.tolist())}
    count, rows_of = [0] * len(columns), []
    for token in said:
        if token in columns:
            count[columns[token]] += 1
    rows_of.append(count)
    for token in offered:
        count = [*count]
        if token in columns:
            count[columns[token]] += 1
        rows_of.append(count)
    return torch.tensor(rows_of, device=tokens.device)
