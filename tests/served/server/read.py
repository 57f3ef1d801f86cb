"""What a prompt's tokens are to the model, as vLLM writes it: for each the likeliest tokens of the vocabulary at its
place, with their log-probs and ranks, and the token itself. Beside vLLM's the least likely one is told too: without it
nobody can tell from a list how far a distribution is from another at most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from qualgate.engine.loaded import LoadedArm
from qualgate.engine.request import Read

MOST_LISTED = 2**20  # entries of one reply

Entries = list[tuple[int, float, int]]  # token, log-prob in nats, rank from 1


def listed(event: Read, wanted: Mapping[int, int]) -> list[tuple[int, Entries]]:
    """(request, entries) of each position of the event, in its order. wanted: request → how many likeliest tokens."""
    logprobs = event.logits.double().log_softmax(-1)
    order = event.logits.argsort(dim=-1, descending=True, stable=True)
    rank = torch.empty_like(order).scatter_(-1, order, torch.arange(1, order.shape[-1] + 1).expand_as(order))
    found = []
    for at, (request, token) in enumerate(zip(event.requests, event.answer.tolist(), strict=True)):
        told = dict.fromkeys([*order[at, : wanted[request]].tolist(), token, int(order[at, -1])])
        found.append((request, [(one, float(logprobs[at, one]), int(rank[at, one])) for one in told]))
    return found


def spelled(entries: Entries, arm: LoadedArm) -> dict[str, Any]:
    """Of one position, as vLLM writes it."""
    return {
        str(token): {"logprob": logprob, "rank": rank, "decoded_token": str(arm.tokenizer.decode([token]))}
        for token, logprob, rank in entries
    }
