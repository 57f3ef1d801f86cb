"""A batch's steps: read the answers and the prompts, then one token a row and step until every row has ended."""

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
CROWDED = 0.75  # of a batch's rows still going: from here on the ended ones are taken out


@dataclass(frozen=True, slots=True)
class Pending:
    """A row that goes on after a first pass: what of that pass's cache it keeps, all but the token said last."""

    row: Row
    cached: CachedRow


def read(decoder: Decoder, rows: Sequence[Row], transcript: Transcript) -> list[Pending]:
    """Read every row's prompt with its answer, in parts that fit in memory; returns the rows that go on."""
    pending: list[Pending] = []
    for part in _parts(rows, decoder.head):
        transcript.take_out()
        if left := [row for row in part if not row.ended]:
            pending += _read(decoder, left, transcript)
    return pending


def _read(decoder: Decoder, rows: Sequence[Row], transcript: Transcript) -> list[Pending]:
    """Prompts are padded on the left and answers on the right, so that all answers start in the same slot. No token of
    a row ever attends to the padding behind it."""
    device = decoder.device
    prompt_ids, lengths = pad([row.request.prompt for row in rows], device)
    offered = torch.tensor([len(row.request.answer) for row in rows], device=device)
    width, longest = prompt_ids.shape[1], int(offered.max())
    answer = torch.tensor(
        [[*row.request.answer, *[0] * (longest - len(row.request.answer))] for row in rows], device=device
    )
    # The last token of an answer predicts nothing that is asked for.
    token_ids = torch.cat([prompt_ids, answer[:, :-1]], dim=1)
    slots, start = torch.arange(token_ids.shape[1], device=device), width - lengths
    mask = (slots >= start[:, None]) & (slots < (width + offered - 1)[:, None])
    cache = new_cache(decoder.config) if any(row.request.max_new_tokens for row in rows) else None
    states = decoder.step(token_ids, mask, cache, keep=longest, lean=True).states
    inside = torch.arange(longest, device=device) < offered[:, None]
    transcript.read(rows, states[inside])
    going = [at for at, row in enumerate(rows) if not row.ended]
    if cache is None or not going:
        return []
    starts = start.tolist()
    # What it said but for the last token is its answer's beginning, which stands in the cache; the rest is left behind.
    kept = [CachedRow(cache, at, starts[at], width + len(rows[at].said) - 1) for at in going]
    return [Pending(rows[at], one) for at, one in zip(going, compacted(kept, decoder.config), strict=True)]


def _parts(rows: Sequence[Row], head: OutputHead) -> Iterator[list[Row]]:
    """Rows to read together: bounded in tokens and, for the longest answer among them, in logits that are kept."""
    widths = [len(row.request.prompt) + len(row.request.answer) for row in rows]
    most = LOGITS_AT_ONCE if head.whole else max(1, LOGITS_AT_ONCE // head.vocabulary)
    for part in split(widths, READ_TOKENS):
        for within in split([len(rows[at].request.answer) for at in part], most):
            yield [rows[part[at]] for at in within]


def prefill(decoder: Decoder, rows: Sequence[Row], transcript: Transcript) -> list[Pending]:
    """Read the prompts, with what was said already, and say each row's next token; returns the rows that go on."""
    pending: list[Pending] = []
    texts = {row: (*row.request.prompt, *row.said) for row in rows}
    for part in split([len(texts[row]) for row in rows], READ_TOKENS):
        transcript.take_out()
        left = [rows[at] for at in part if not rows[at].ended]
        if not left:
            continue
        token_ids, lengths = pad([texts[row] for row in left], decoder.device)
        cache, width = new_cache(decoder.config), token_ids.shape[1]
        step = decoder.forward(token_ids, lengths, cache, keep=1)
        transcript.say(left, step.logits[:, -1], step.states[:, -1])
        pending += [
            Pending(row, CachedRow(cache, at, width - len(texts[row]), width))
            for at, row in enumerate(left)
            if not row.ended
        ]
    return pending


@dataclass(slots=True)
class _Batch:
    """Rows side by side. lengths: int64 [rows], the slots of each that are filled in the cache."""

    rows: list[Row]
    lengths: torch.Tensor
    cache: Cache


def decode(decoder: Decoder, pending: list[Pending], transcript: Transcript) -> None:
    """Step the pending rows until each has ended. Empties `pending`: it holds the first passes' caches."""
    transcript.take_out()
    left = [one for one in pending if not one.row.ended]
    pending.clear()
    if not left:
        return
    batch = _batch([one.row for one in left], [one.cached for one in left], decoder)
    del left
    while going := [at for at, row in enumerate(batch.rows) if not row.ended]:
        if len(going) <= CROWDED * len(batch.rows):
            batch = _without_ended(batch, going, decoder)
            going = list(range(len(going)))
        tokens = torch.tensor([[row.said[-1]] for row in batch.rows], device=decoder.device)
        batch.lengths += 1
        step = decoder.forward(tokens, batch.lengths, batch.cache, keep=1)
        logits, states = step.logits[:, -1], step.states[:, -1]
        if len(going) < len(batch.rows):
            logits, states = logits[going], states[going]
        transcript.say([batch.rows[at] for at in going], logits, states)
        transcript.take_out()


def _batch(rows: list[Row], cached: Sequence[CachedRow], decoder: Decoder) -> _Batch:
    lengths = torch.tensor([one.stop - one.start for one in cached], device=decoder.device)
    return _Batch(rows, lengths, regroup(cached, decoder.config))


def _without_ended(batch: _Batch, going: Sequence[int], decoder: Decoder) -> _Batch:
    """Only the rows that go on, and no wider than the longest of them."""
    width, lengths = batch.cache.get_seq_length(), batch.lengths.tolist()
    kept = [CachedRow(batch.cache, at, width - lengths[at], width) for at in going]
    return _batch([batch.rows[at] for at in going], kept, decoder)
