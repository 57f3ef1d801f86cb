"""Engines that are wrong on purpose, in ways that were seen: what a test that rejects nothing would let through."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import torch

from qualgate.engine import packed
from qualgate.engine.advance import Advance, advance
from qualgate.engine.request import Request
from qualgate.engine.sampling import Draws, Said, greedy

_said = Draws.said


def _believed(
    request: Request, said: Sequence[int], draft: Sequence[int], would: Sequence[int], finite: Sequence[bool]
) -> Advance:
    return advance(request, said, draft, [*draft[:1], *would[1:]] if draft else would, finite)


def _only_greedy(draws: Draws, logits: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor) -> Said:
    return greedy(logits)


def _colder(draws: Draws, logits: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor) -> Said:
    sampling = replace(draws.sampling, temperature=0.85 * draws.sampling.temperature)
    return _said(replace(draws, sampling=sampling), logits, rows, positions)


def _without_position(draws: Draws, logits: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor) -> Said:
    return _said(draws, logits, rows, torch.zeros_like(positions))


def _without_cuts(draws: Draws, logits: torch.Tensor, rows: torch.Tensor, positions: torch.Tensor) -> Said:
    return _said(replace(draws, sampling=replace(draws.sampling, top_k=0)), logits, rows, positions)


class Wrong(NamedTuple):
    """of, name: what is replaced with `by`; sampling: at which it is to be seen."""

    of: Any
    name: str
    by: Callable[..., Any]
    sampling: str = "temperature 1"


WRONG = {
    "the first token of a draft is believed": Wrong(packed, "advance", _believed),
    "greedy, whatever the temperature": Wrong(Draws, "said", _only_greedy),
    "a temperature that is 15 % too low": Wrong(Draws, "said", _colder),
    "the same noise at every position": Wrong(Draws, "said", _without_position),
    "verified without top-k": Wrong(Draws, "said", _without_cuts, "top-k 3 at 0.7"),
}


@contextmanager
def wrong(name: str) -> Iterator[None]:
    """The engines of packed passes are wrong so, for the length of the block."""
    one = WRONG[name]
    with patch.object(one.of, one.name, one.by):
        yield
