"""Time the passes of an arm that speculates when it is loaded: its speed-up is predicted from them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import torch

from qualgate.engine.attention import KeysValues
from qualgate.engine.batch import batch
from qualgate.engine.choice import Choice, open_decoder, threads_of_kernels
from qualgate.engine.draft_arms import levels
from qualgate.engine.drafting import MOST
from qualgate.engine.sampling import greedy
from qualgate.engine.speculation.propose import DraftRequest
from qualgate.records import Speculation
from qualgate.records.speculated import DRAFT_COST, VERIFY_COST
from qualgate_kernels.slots import SLOTS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from qualgate.engine.draft_heads.loading import LoadedHead

POSITIONS = 128  # that a row sees
ROWS = (2, 3, 5, 9, 17, MOST + 1)  # of a verification, where γ is chosen as it runs
TIMES = 5
DRAFTED = 5  # tokens of a draft of adaptive length


@dataclass(frozen=True, slots=True)
class _Text:
    blocks: range


@dataclass(frozen=True, slots=True)
class _Rows:
    """See `batch.Rows`."""

    stream: _Text
    first: int
    tokens: list[int]
    wants: int


Runs = tuple["PreTrainedModel", Choice]


def pass_costs(
    target: Runs, speculation: Speculation, drafts: Sequence[Runs | None], head: LoadedHead | None = None
) -> dict[str, float]:
    """Return facts by the names in `records.speculated`: each proposer's step, and the target's passes over the rows
    that it verifies, relative to a plain step of the target on one sequence. drafts: one per level, None without a
    model; head: the target's, if a level is of that kind. Text lookups cost nothing."""
    with threads_of_kernels() as threads:
        plain, facts = _seconds(target, 1, threads), dict[str, float]()
        for number, (level, runs) in enumerate(zip(levels(speculation), drafts, strict=True), start=1):
            if level.draft.kind == "head" and head is not None:
                facts[f"{DRAFT_COST}{number}"] = _seconds_of_head(target, head, level.tokens, threads) / plain
            else:
                facts[f"{DRAFT_COST}{number}"] = _seconds(runs, 1, threads) / plain if runs else 0.0
        for rows in (speculation.tokens + 1,) if speculation.tokens else ROWS:
            facts[f"{VERIFY_COST}{rows}"] = _seconds(target, rows, threads) / plain
    return facts


def _seconds(runs: Runs, rows: int, threads: int) -> float:
    """Return the seconds of the fastest of a few passes over so many rows of one text, up to their tokens."""
    blocks = -(-(POSITIONS + rows) // SLOTS)
    part, seconds = _Rows(_Text(range(blocks)), POSITIONS, [0] * rows, rows), list[float]()
    states = KeysValues(runs[1].cache_form, runs[1].scales)
    with open_decoder(*runs) as (decoder, head):
        for _ in range(1 + TIMES):  # the first makes what it keeps
            began = perf_counter()
            greedy(head.logits(decoder.forward(batch([part], blocks), states, threads))).tokens.tolist()
            seconds.append(perf_counter() - began)
    return min(seconds[1:])


def _seconds_of_head(target: Runs, head: LoadedHead, tokens: int, threads: int) -> float:
    """Seconds per token of the fastest of a few drafts of a head for one text. tokens: γ, 0 if it is adaptive."""
    model, choice = target
    prompt, seconds, drafted = [0] * POSITIONS, list[float](), tokens or DRAFTED
    blocks = -(-(POSITIONS + TIMES + 1 + drafted) // SLOTS)
    with open_decoder(model, choice) as (_, output):
        embed = model.get_input_embeddings()
        proposer = head.proposer("", output, embed, blocks=blocks, threads=threads, stop_ids=frozenset())
        proposer.read(0, prompt, 0, torch.zeros(POSITIONS, head.reads))
        for length in range(1, TIMES + 2):  # the first reads the prompt
            began = perf_counter()
            (draft,) = proposer.propose([DraftRequest(0, prompt, [0] * length, drafted)])
            seconds.append((perf_counter() - began) / max(1, len(draft.tokens)))
            proposer.read(0, prompt, POSITIONS + length - 1, torch.zeros(1, head.reads))
    return min(seconds[1:])
