"""Steps of a padded batch: read answers and prompts, then one token per row and step until every row has ended."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from transformers.cache_utils import Cache

from qualgate.engine.head import OutputHead
from qualgate.engine.padded.cache import CachedRow, compacted, new_cache, regroup
from qualgate.engine.padded.forward import Decoder, pad, split
from qualgate.engine.padded.transcript import LOGITS_AT_ONCE, Row, Transcript

READ_TOKENS = 4096  # read in one forward: more is not faster on a CPU and only takes memory
CROWDED = 0.75  # share of rows still running at which ended ones are removed from a batch


@dataclass(frozen=True, slots=True)
class Pending:
    """A row that continues after its first pass, with its part of that pass's cache: all but the last token."""

    row: Row
    cached: CachedRow


def read(decoder: Decoder, rows: Sequence[Row], transcript: Transcript) -> list[Pending]:
    """Read every row's prompt with its answer, in parts that fit into memory; return the rows that continue."""
    pending: list[Pending] = []
    for part in _parts(rows, decoder.head):
        transcript.take_out()
        if remaining := [row for row in part if not row.ended]:
            pending += _read(decoder, remaining, transcript)
    return pending


def _read(decoder: Decoder, rows: Sequence[Row], transcript: Transcript) -> list[Pending]:
    """Read prompts and answers in one pass; return the rows that continue.

    Prompts are padded on the left and answers on the right, so that all answers start in the same slot. No token of a
    row attends to the padding behind it.
    """
    device = decoder.device
    prompt_ids, lengths = pad([row.request.prompt for row in rows], device)
    offered = torch.tensor([len(row.request.answer) for row in rows], device=device)
    width, longest = prompt_ids.shape[1], int(offered.max())
    answer = torch.tensor(
        [[*row.request.answer, *[0] * (longest - len(row.request.answer))] for row in rows], device=device
    )
    # Nothing needs the prediction behind an answer's end.
    token_ids = torch.cat([prompt_ids, answer[:, :-1]], dim=1)
    slots, start = torch.arange(token_ids.shape[1], device=device), width - lengths
    mask = (slots >= start[:, None]) & (slots < (width + offered - 1)[:, None])
    cache = new_cache(decoder.config) if any(row.request.max_new_tokens for row in rows) else None
    states = decoder.step(token_ids, mask, cache, keep=longest, lean=True).states
    inside = torch.arange(longest, device=device) < offered[:, None]
    transcript.read(rows, states[inside])
    running = [index for index, row in enumerate(rows) if not row.ended]
    if cache is None or not running:
        return []
    starts = start.tolist()
    # The cache holds the tokens but the last, which begin the given answer; what lies behind them is dropped.
    cached_rows = [CachedRow(cache, index, starts[index], width + len(rows[index].generated) - 1) for index in running]
    return [
        Pending(rows[index], cached)
        for index, cached in zip(running, compacted(cached_rows, decoder.config), strict=True)
    ]


def _parts(rows: Sequence[Row], head: OutputHead) -> Iterator[list[Row]]:
    """Yield rows to read together: bounded in tokens and, by the longest answer, in stored logits."""
    widths = [len(row.request.prompt) + len(row.request.answer) for row in rows]
    most = LOGITS_AT_ONCE if head.whole else max(1, LOGITS_AT_ONCE // head.vocabulary)
    for part in split(widths, READ_TOKENS):
        for indices in split([len(rows[index].request.answer) for index in part], most):
            yield [rows[part[index]] for index in indices]


def prefill(decoder: Decoder, rows: Sequence[Row], transcript: Transcript) -> list[Pending]:
    """Read the prompts and generated tokens, and generate each row's next token; return the rows that continue."""
    pending: list[Pending] = []
    texts = {row: (*row.request.prompt, *row.generated) for row in rows}
    for part in split([len(texts[row]) for row in rows], READ_TOKENS):
        transcript.take_out()
        remaining = [rows[index] for index in part if not rows[index].ended]
        if not remaining:
            continue
        token_ids, lengths = pad([texts[row] for row in remaining], decoder.device)
        cache, width = new_cache(decoder.config), token_ids.shape[1]
        step = decoder.forward(token_ids, lengths, cache, keep=1)
        transcript.say(remaining, step.logits[:, -1], step.states[:, -1])
        pending += [
            Pending(row, CachedRow(cache, at, width - len(texts[row]), width))
            for at, row in enumerate(remaining)
            if not row.ended
        ]
    return pending


@dataclass(slots=True)
class _Batch:
    """Rows side by side. lengths: int64 [rows], filled slots of each in the cache."""

    rows: list[Row]
    lengths: torch.Tensor
    cache: Cache


def decode(decoder: Decoder, pending: list[Pending], transcript: Transcript) -> None:
    """Step the pending rows until each has ended. Empties `pending`, which holds the first passes' caches."""
    transcript.take_out()
    remaining = [pending_row for pending_row in pending if not pending_row.row.ended]
    pending.clear()
    if not remaining:
        return
    batch = _batch(
        [pending_row.row for pending_row in remaining], [pending_row.cached for pending_row in remaining], decoder
    )
    del remaining
    while running := [index for index, row in enumerate(batch.rows) if not row.ended]:
        if len(running) <= CROWDED * len(batch.rows):
            batch = _without_ended(batch, running, decoder)
            running = list(range(len(running)))
        tokens = torch.tensor([[row.generated[-1]] for row in batch.rows], device=decoder.device)
        batch.lengths += 1
        step = decoder.forward(tokens, batch.lengths, batch.cache, keep=1)
        logits, states = step.logits[:, -1], step.states[:, -1]
        if len(running) < len(batch.rows):
            logits, states = logits[running], states[running]
        transcript.say([batch.rows[index] for index in running], logits, states)
        transcript.take_out()


def _batch(rows: list[Row], cached: Sequence[CachedRow], decoder: Decoder) -> _Batch:
    lengths = torch.tensor([row.stop - row.start for row in cached], device=decoder.device)
    return _Batch(rows, lengths, regroup(cached, decoder.config))


def _without_ended(batch: _Batch, running: Sequence[int], decoder: Decoder) -> _Batch:
    """Return a batch of only the running rows, no wider than the longest of them."""
    width, lengths = batch.cache.get_seq_length(), batch.lengths.tolist()
    cached_rows = [CachedRow(batch.cache, index, width - lengths[index], width) for index in running]
    return _batch([batch.rows[index] for index in running], cached_rows, decoder)
