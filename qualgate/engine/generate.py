"""Our own batched greedy step loop: read the prompts, then one token a row and step until every row has ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache

from qualgate.engine.cache import CachedRow, new_cache, regroup
from qualgate.engine.forward import Decoder, Step, pad, split
from qualgate.engine.transcript import Transcript

PREFILL_TOKENS = 4096  # read in one forward: more is not faster on a CPU and only takes memory
CROWDED = 0.75  # of a batch's rows still going: below this the ended ones are taken out

Watch = Callable[[torch.Tensor, Step], None]
"""Called with (rows, step) for every token said; step.logits and step.hidden are [rows, 1, ...]."""


@dataclass(slots=True)
class Batch:
    """Rows that go on: their index in the transcript, the token said last, the slots filled in the cache."""

    rows: torch.Tensor
    tokens: torch.Tensor
    lengths: torch.Tensor
    cache: Cache


@dataclass(frozen=True, slots=True)
class Pending:
    """A row that goes on after a first pass: what of that pass's cache it keeps."""

    row: int
    token: int
    cached: CachedRow


def generate(
    decoder: Decoder, prompts: Sequence[Sequence[int]], transcript: Transcript, watch: Watch | None = None
) -> None:
    """Answer every prompt greedily into `transcript`."""
    pending = prefill(decoder, prompts, transcript, watch)
    decode(decoder, pending, transcript, watch)


def prefill(
    decoder: Decoder, prompts: Sequence[Sequence[int]], transcript: Transcript, watch: Watch | None = None
) -> list[Pending]:
    """Read the prompts and say each row's first token; returns the rows that go on."""
    pending: list[Pending] = []
    device = transcript.tokens.device
    for part in split([len(prompt) for prompt in prompts], PREFILL_TOKENS):
        token_ids, lengths = pad([prompts[row] for row in part], device)
        cache = new_cache(decoder.config)
        step = decoder.forward(token_ids, lengths, cache, keep=1)
        rows = torch.tensor(part, device=device)
        tokens, open_ = transcript.append(rows, step.logits[:, -1])
        if watch:
            watch(rows, step)
        width = token_ids.shape[1]
        pending += [
            Pending(row, token, CachedRow(cache, index, width - len(prompts[row]), width))
            for index, (row, token, goes_on) in enumerate(zip(part, tokens.tolist(), open_.tolist(), strict=True))
            if goes_on
        ]
    return pending


def decode(decoder: Decoder, pending: list[Pending], transcript: Transcript, watch: Watch | None = None) -> None:
    """Step the pending rows until each has ended."""
    if not pending:
        return
    device = transcript.tokens.device
    batch = Batch(
        rows=torch.tensor([row.row for row in pending], device=device),
        tokens=torch.tensor([row.token for row in pending], device=device),
        lengths=torch.tensor([row.cached.stop - row.cached.start for row in pending], device=device),
        cache=regroup([row.cached for row in pending], decoder.config),
    )
    pending.clear()  # the first pass's caches
    going = torch.arange(len(batch.rows), device=device)  # indices into the batch
    while going.numel():
        batch.lengths += 1
        step = decoder.forward(batch.tokens[:, None], batch.lengths, batch.cache, keep=1)
        everyone = going.numel() == batch.rows.numel()
        if not everyone:
            step = Step(step.logits[going], step.hidden[going])
        rows = batch.rows[going]
        tokens, open_ = transcript.append(rows, step.logits[:, -1])
        if watch:
            watch(rows, step)
        batch.tokens[going] = tokens
        if not open_.all():
            going = going[open_]
            if 0 < going.numel() <= CROWDED * batch.rows.numel():
                batch = _without_ended(batch, going, decoder)
                going = torch.arange(going.numel(), device=device)


def _without_ended(batch: Batch, going: torch.Tensor, decoder: Decoder) -> Batch:
    """Only the rows that go on, and no wider than the longest of them."""
    width, lengths = batch.cache.get_seq_length(), batch.lengths[going]
    kept = [
        CachedRow(batch.cache, row, width - length, width)
        for row, length in zip(going.tolist(), lengths.tolist(), strict=True)
    ]
    return Batch(
        rows=batch.rows[going], tokens=batch.tokens[going], lengths=lengths, cache=regroup(kept, decoder.config)
    )
