"""Drafts made up from a seed, as an engine that speculates would tell them of answers that are there. No model runs."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace

from qualgate.records import DraftStep, JobResult, UnitKey

CHANCES = (0.9, 0.8, 0.7, 0.6)  # that a token is accepted if those before it were: of four a draft


def with_drafts(
    result: JobResult, chances: Sequence[float] = CHANCES, under: Sequence[float] = (), proposer: str = "mxfp4 draft"
) -> JobResult:
    """The job's result of an arm that speculates: its answers, times and all else as they are. Every step is of its
    answer's own pass, over as many sequences as the job has, and tells what its rule might have accepted."""
    steps = (
        replace(
            step,
            pass_number=at,
            sequences=len(result.completions),
            overlap=0.75 * (step.accepted + step.rejected) if step.proposed else None,
        )
        for said in result.completions
        for at, step in enumerate(steps_of(said.key, len(said.token_ids), chances, under, proposer))
    )
    return replace(result, draft_steps=tuple(steps))


def steps_of(
    key: UnitKey,
    tokens: int,
    chances: Sequence[float] = CHANCES,
    under: Sequence[float] = (),
    proposer: str = "mxfp4 draft",
) -> Iterator[DraftStep]:
    """Of an answer of so many tokens, whose first came with the prompt: of that pass a step is told, too. under: a
    second level's chances.

    An answer that ends within a draft leaves the rest of it unverified.
    """
    drawn = random.Random(f"{key} {tokens}")
    if tokens:
        yield DraftStep(key=key, level=1, position=0, proposed=0, accepted=0, rejected=0)
    at = 1
    while at < tokens:
        if under:
            yield from _under(key, at, len(chances), under, drawn)
        accepted = _agreeing(chances, drawn)
        ends = at + accepted >= tokens
        accepted = min(accepted, tokens - at)
        proposed = accepted if ends else len(chances)
        yield DraftStep(
            key=key, level=1, position=at, proposed=proposed, accepted=accepted, rejected=int(accepted < proposed),
            unverified=len(chances) - proposed, proposer=proposer,
        )  # fmt: skip
        at += accepted + 1


def _under(key: UnitKey, at: int, wanted: int, chances: Sequence[float], drawn: random.Random) -> Iterator[DraftStep]:
    """What drafts for a draft of `wanted` tokens that begins at `at`."""
    made = 0
    while made < wanted:
        proposed = min(len(chances), wanted - made - 1)
        accepted = _agreeing(chances[:proposed], drawn)
        yield DraftStep(
            key=key, level=2, position=at + made, proposed=proposed, accepted=accepted,
            rejected=int(accepted < proposed), proposer="ngram" if proposed else "",
        )  # fmt: skip
        made += accepted + 1


def _agreeing(chances: Sequence[float], drawn: random.Random) -> int:
    return next((place for place, chance in enumerate(chances) if drawn.random() >= chance), len(chances))
