"""Time passes over several sequences when an arm that speculates is loaded. Draft control starts from these seconds,
and they show at which batch size drafting stops paying."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.choice import Choice, open_decoder, threads_of_kernels
from qualgate.engine.sampling import greedy
from qualgate.engine.speculation.lengths import Learned
from qualgate.records.speculated import BATCH_COST, DRAFT_STEP_COST, PLAIN_STEP, READING_COST, costs_of
from qualgate_kernels.slots import SLOTS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

POSITIONS = 128  # that a row sees
BATCHES = (1, 4, 16, 64)  # sequences
ROWS = (1, 2, 5, 9, 17)  # of each, where γ is chosen as it runs
MOST_ROWS = 320  # of a pass: nobody drafts far for so many
TEXT = 64  # tokens that are read
TIMES, MOST_TIMES, ENOUGH = 2, 8, 0.02  # passes of a shape, at least and at most; seconds after which no more are
LONGEST = 0.5  # seconds of a pass, from which on larger ones are not timed

Runs = tuple["PreTrainedModel", Choice]


@dataclass(frozen=True, slots=True)
class _Text:
    blocks: Sequence[int]


@dataclass(frozen=True, slots=True)
class _Rows:
    """See `batch.Rows`."""

    stream: _Text
    first: int
    tokens: list[int]
    wants: int


def batch_costs(target: Runs, tokens: int, drafts: Sequence[Runs | None], reusing_levels: int = 0) -> dict[str, float]:
    """Return facts by the names in `records.speculated`: costs in plain steps of one sequence, and that step in
    seconds. tokens: γ, 0 if it is adaptive; drafts: one per level, None without a model; lent: how many of the first
    levels reuse the target's keys and values and read no text."""
    with threads_of_kernels() as threads:
        rows = (1, tokens + 1) if tokens else ROWS
        shapes = [
            (count, count * rows_each)
            for count in BATCHES
            for rows_each in rows
            if count * rows_each <= MOST_ROWS or tokens
        ]
        timed = _timed(target, shapes, threads)
        plain = timed[1, 1]
        facts = {PLAIN_STEP: plain}
        facts |= {f"{BATCH_COST}{count}x{of_all}": seconds / plain for (count, of_all), seconds in timed.items()}
        for number, level in enumerate(drafts, start=1):
            if level is None:
                continue
            steps = _timed(level, [(count, count) for count in BATCHES], threads)
            facts |= {f"{DRAFT_STEP_COST}{number}x{count}": seconds / plain for (count, _), seconds in steps.items()}
            if number <= reusing_levels:
                continue
            reading_seconds = _timed(level, [(1, TEXT)], threads)[1, TEXT]
            facts[f"{READING_COST}{number}"] = max(0.0, reading_seconds - steps[1, 1]) / (TEXT - 1) / plain
    return facts


def learned_from(facts: Mapping[str, float], names: Sequence[str]) -> Learned:
    """Return what a target with these timings knows at the start. names: who drafts, one per level."""
    learned = Learned()
    plain = facts.get(PLAIN_STEP, 0.0)
    learned.seed({shape: cost * plain for shape, cost in costs_of(facts, BATCH_COST).items()})
    steps = costs_of(facts, DRAFT_STEP_COST)
    for number, name in enumerate(names, start=1):
        by_count = {count: cost * plain for (level, count), cost in steps.items() if level == number}
        if by_count:
            learned.lengths(name).seed(by_count, facts.get(f"{READING_COST}{number}", 0.0) * plain)
    return learned


def _timed(runs: Runs, shapes: Sequence[tuple[int, int]], threads: int) -> dict[tuple[int, int], float]:
    """Return the fastest of a few passes of each shape (sequences, rows in all), up to its tokens. Shapes with at least
    as many rows as one that took too long are skipped. All texts share their context, which keeps memory small: each
    pass reads only the weights anew."""
    context_blocks, times = POSITIONS // SLOTS, dict[tuple[int, int], float]()
    own_total = max(count * _own(rows // count) for count, rows in shapes)
    states, too_many = KeysValues(runs[1].cache_form, runs[1].scales), inf
    with open_decoder(*runs) as (decoder, head):
        for count, rows in shapes:
            if rows >= too_many:
                continue
            rows_each = rows // count
            block_ranges = [
                range(context_blocks + index * _own(rows_each), context_blocks + (index + 1) * _own(rows_each))
                for index in range(count)
            ]
            parts = [
                _Rows(_Text([*range(context_blocks), *own_blocks]), POSITIONS, [0] * rows_each, rows_each)
                for own_blocks in block_ranges
            ]
            seconds = list[float]()
            # The first pass allocates memory. Noise weighs more in small passes, so more of them are timed.
            while len(seconds) <= TIMES or (len(seconds) <= MOST_TIMES and sum(seconds) < ENOUGH):
                began = perf_counter()
                greedy(
                    head.logits(decoder.forward(batch(parts, context_blocks + own_total), states, threads))
                ).tokens.tolist()
                seconds.append(perf_counter() - began)
            times[count, rows] = min(seconds[1:])
            if times[count, rows] > LONGEST:
                too_many = rows
    return times


def _own(rows: int) -> int:
    """Return the number of blocks that only one text uses."""
    return -(-rows // SLOTS)
