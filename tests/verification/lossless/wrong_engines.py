"""Engines that are wrong on purpose, in ways that were seen: what a test that rejects nothing would let through."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from qualgate.engine import packed, steering
from qualgate.engine.advance import Advance, advance
from qualgate.engine.constraint import GrammarMask
from qualgate.engine.draft_heads.proposer import DraftHead
from qualgate.engine.penalties import penalized
from qualgate.engine.request import Request
from qualgate.engine.sampling import Draws, Said, greedy
from qualgate.engine.speculation.chance import HashedChance
from qualgate.engine.speculation.propose import Draft
from qualgate.engine.speculation.rules import RULES
from qualgate.records import Sampling
from tests.verification.lossless.engine_law import VOCABULARY
from tests.verification.lossless.mutants import mask_not_rewound
from tests.verification.lossless.ways import CONSTRAINED, HEAD, MODEL, PENALIZED, PLAIN, TEXTS, Way

_said, _drafted = Draws.sample, DraftHead._drafted


def _believed(
    request: Request, said: Sequence[int], draft: Sequence[int], would: Sequence[int], finite: Sequence[bool]
) -> Advance:
    return advance(request, said, draft, [*draft[:1], *would[1:]] if draft else would, finite)


def _only_greedy(draws: Draws, logits: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor) -> Said:
    return greedy(logits)


def _colder(draws: Draws, logits: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor) -> Said:
    sampling = replace(draws.sampling, temperature=0.75 * draws.sampling.temperature)
    return _said(replace(draws, sampling=sampling), logits, rows, positions)


def _without_position(draws: Draws, logits: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor) -> Said:
    return _said(draws, logits, rows, torch.zeros_like(positions))


def _without_rounds(chance: HashedChance) -> tuple[int, ...]:
    chance._drawn += 1
    return chance.seed, chance.case, chance._drawn


def _counts_stand_still(logits: Any, prompt: Any, said: Any, offered: Sequence[int], sampling: Sampling) -> Any:
    return penalized(logits, prompt, said, [VOCABULARY] * len(offered), sampling)


def _counts_of_rejected() -> Any:
    before = list[int]()

    def wrong(logits: Any, prompt: Any, said: Any, offered: Sequence[int], sampling: Sampling) -> Any:
        found = penalized(logits, prompt, [*said, *before], offered, sampling)
        before[:] = offered  # whether they are said or not, and by whom
        return found

    return wrong


def _even_q(head: DraftHead, row: Any) -> Draft:
    found = _drafted(head, row)
    q = found.drawn_from
    return replace(found, drawn_from=None if q is None else torch.full_like(q, 1 / q.shape[-1]))


class Wrong(NamedTuple):
    """planted: makes engines of packed passes wrong, for the length of its block; way: in which it is to be seen."""

    planted: Callable[[], AbstractContextManager[Any]]
    way: Way


def _wrong(place: Any, name: str, made: Any, **way: Any) -> Wrong:
    """Where this name stands for what was made; seen with texts that draft, unless `way` says otherwise."""
    return Wrong(lambda: patch.object(place, name, made), Way("plain", PLAIN, "keyed", TEXTS)._replace(**way))


WRONG = {
    "the first token of a draft is believed": _wrong(packed, "advance", _believed),
    "greedy, whatever the temperature": _wrong(Draws, "sample", _only_greedy),
    "a temperature that is a quarter too low": _wrong(Draws, "sample", _colder),
    "the same noise at every position": _wrong(Draws, "sample", _without_position),
    "penalties count what was said, and nothing of the draft before a row": _wrong(
        steering, "penalized", _counts_stand_still, sampling=PENALIZED
    ),
    "penalties count tokens that were rejected": _wrong(
        steering, "penalized", _counts_of_rejected(), sampling=PENALIZED
    ),
    "typical acceptance, said to be speculative sampling": Wrong(
        lambda: patch.dict(RULES, {"speculative_sampling": RULES["typical"]}),
        Way("plain", PLAIN, "speculative_sampling", TEXTS),
    ),
    "a constraint's state stays behind a draft that was rejected": _wrong(
        GrammarMask, "_reads", mask_not_rewound()._reads, sampling=CONSTRAINED
    ),
    "a head's drafts are judged as if all tokens had been as likely": _wrong(
        DraftHead, "_drafted", _even_q, rule="speculative_sampling", drafts=HEAD
    ),
    "levels and rounds share their numbers": _wrong(
        HashedChance, "next_key", _without_rounds, rule="speculative_sampling", drafts=MODEL
    ),
}
