"""Seconds of the passes of an arm that speculates, timed when it is loaded: a speed-up is foretold by them."""

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
from qualgate.records import Speculation
from qualgate.records.speculated import DRAFT_COST, VERIFY_COST
from qualgate.speculation.propose import Asked
from qualgate_kernels.slots import SLOTS

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from qualgate.engine.draft_heads.loading import LoadedHead

POSITIONS = 128  # that a row sees
ROWS = (2, 3, 5, 9, 17, MOST + 1)  # of a verification, where γ is chosen as it runs
TIMES = 5
DRAFTED = 5  # tokens of a draft whose length nobody says


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
    """Facts of an arm that speculates, by the names in `records.speculated`: of each proposer's step, and of passes of
    its target over the rows that it verifies, over a plain step of the target, all of one sequence. drafts: a level
    each, None where none runs a model of its own; head: of the target, where its level is of that kind. Texts draft
    for nothing.
    """
    with threads_of_kernels() as threads:
        plain, found = _seconds(target, 1, threads), dict[str, float]()
        for at, (level, runs) in enumerate(zip(levels(speculation), drafts, strict=True), start=1):
            if level.draft.kind == "head" and head is not None:
                found[f"{DRAFT_COST}{at}"] = _seconds_of_head(target, head, level.tokens, threads) / plain
            else:
                found[f"{DRAFT_COST}{at}"] = _seconds(runs, 1, threads) / plain if runs else 0.0
        for rows in (speculation.tokens + 1,) if speculation.tokens else ROWS:
            found[f"{VERIFY_COST}{rows}"] = _seconds(target, rows, threads) / plain
    return found


def _seconds(runs: Runs, rows: int, threads: int) -> float:
    """The least of a few passes over so many rows of one text, to the tokens that they say."""
    blocks = -(-(POSITIONS + rows) // SLOTS)
    asked, taken = _Rows(_Text(range(blocks)), POSITIONS, [0] * rows, rows), list[float]()
    states = KeysValues(runs[1].kept, runs[1].scales)
    with open_decoder(*runs) as (decoder, head):
        for _ in range(1 + TIMES):  # the first makes what it keeps
            began = perf_counter()
            greedy(head.logits(decoder.forward(batch([asked], blocks), states, threads))).tokens.tolist()
            taken.append(perf_counter() - began)
    return min(taken[1:])


def _seconds_of_head(target: Runs, head: LoadedHead, tokens: int, threads: int) -> float:
    """The least of a few drafts of a head for one text, over the tokens of each. tokens: γ, 0: as many as pay."""
    model, choice = target
    prompt, taken, drafted = [0] * POSITIONS, list[float](), tokens or DRAFTED
    blocks = -(-(POSITIONS + TIMES + 1 + drafted) // SLOTS)
    with open_decoder(model, choice) as (_, output):
        embed = model.get_input_embeddings()
        proposer = head.proposer("", output, embed, blocks=blocks, threads=threads, stop_ids=frozenset())
        proposer.read(0, prompt, 0, torch.zeros(POSITIONS, head.reads))
        for said in range(1, TIMES + 2):  # the first reads the prompt
            began = perf_counter()
            (draft,) = proposer.propose([Asked(0, prompt, [0] * said, drafted)])
            taken.append((perf_counter() - began) / max(1, len(draft.tokens)))
            proposer.read(0, prompt, POSITIONS + said - 1, torch.zeros(1, head.reads))
    return min(taken[1:])
