"""Medusa's heads: each says what stands at one place behind the last state, and none looks at what another said.

A head is a residual block on the state, read by the target's own output head (2401.10774, section 2.1.1, but for the
head of its own that each has there). What they say is accepted as any draft is, so answers stay the target's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch.nn import functional

from qualgate.engine.dense import head_of
from qualgate.engine.draft_model import Head
from qualgate.engine.ruling import Ruling
from qualgate.engine.sampling import Draws, say
from qualgate.speculation.propose import NO_DRAFT, Asked, Draft
from qualgate.speculation.text import MOST_MATCHED

LOGITS = 2**24  # numbers that are made at a time: 64 MB of float32


@dataclass(frozen=True, slots=True, eq=False)
class Block:
    """One place's: a linear layer, laid out for the kernels."""

    linear: torch.nn.Module

    def __call__(self, states: torch.Tensor) -> torch.Tensor:
        """float32 [n, width] → [n, width]."""
        return states + functional.silu(self.linear(states))


def block(tensors: Mapping[str, torch.Tensor], place: int) -> Block:
    """Of the tensors of a head's file."""
    return Block(head_of({name: tensors[f"blocks.{place}.{name}"].float() for name in ("weight", "bias")}))


class MedusaHeads:
    """Drafts by `blocks`, greedily or with the noise by which the target draws."""

    runs_model = True

    def __init__(
        self,
        name: str,
        blocks: Sequence[Block],
        head: Head,
        *,
        stop_ids: frozenset[int],
        draws: Draws | Ruling | None = None,
    ) -> None:
        """head: the target's own. draws: as a `DraftModel` has them."""
        self.name = name
        self.broken = 0  # drafts that ended with logits that are no numbers
        self._blocks, self._head, self._stop_ids = blocks, head, stop_ids
        self._ruling = draws if isinstance(draws, Ruling) else None
        self._draws = draws.draws if isinstance(draws, Ruling) else draws
        self._states: dict[
            int, tuple[int, torch.Tensor]
        ] = {}  # of each row what was read last, with its first position

    def read(self, row: int, prompt: Sequence[int], first: int, states: torch.Tensor) -> None:
        """See `Reader`: of all that was read the last pass holds the state before the token that was said last."""
        self._states[row] = first, states

    def propose(self, asked: Sequence[Asked]) -> list[Draft]:
        """See `Proposer`."""
        found, drafts = [(one, self._last(one)) for one in asked], dict[int, Draft]()
        ready = [(one, state) for one, state in found if state is not None]
        at_once = max(1, LOGITS // (self._head.vocabulary * len(self._blocks)))
        for start in range(0, len(ready), at_once):
            self._say(ready[start : start + at_once], drafts)
        return [drafts.get(one.row, NO_DRAFT) for one in asked]

    def ended(self, row: int) -> None:
        """See `Proposer`."""
        self._states.pop(row, None)

    def _last(self, one: Asked) -> torch.Tensor | None:
        """[width]: the state before the last token; None where nobody handed it over."""
        first, states = self._states.get(one.row, (0, None))
        at = len(one.prompt) + len(one.said) - 2 - first
        return states[at] if states is not None and 0 <= at < len(states) else None

    def _say(self, ready: Sequence[tuple[Asked, torch.Tensor]], drafts: dict[int, Draft]) -> None:
        places = min(len(self._blocks), max(one.most for one, _ in ready))
        states = torch.stack([state for _, state in ready])
        of_places = [one(states) for one in self._blocks[:places]]
        logits = self._head.logits(torch.stack(of_places, 1).flatten(0, 1))
        said = say(
            self._draws,
            logits,
            [one.row for one, _ in ready for _ in range(places)],
            [len(one.said) + place for one, _ in ready for place in range(places)],
        )
        tokens, finite = said.tokens.tolist(), said.finite.tolist()
        for at, (one, _) in enumerate(ready):
            here = slice(at * places, at * places + min(places, one.most))
            drafts[one.row] = self._drafted(one, tokens[here], finite[here], logits[here])

    def _drafted(self, one: Asked, tokens: Sequence[int], finite: Sequence[bool], logits: torch.Tensor) -> Draft:
        said, drawn_from = list[int](), list[torch.Tensor]()
        for place, token in enumerate(tokens):
            if not finite[place]:  # the target goes on alone
                self.broken += 1
                break
            if self._ruling is not None:
                here = logits[place : place + 1]
                ruled, _ = self._ruling.drafted(one.row, (*one.round, place), NO_DRAFT, here, self.name)
                assert ruled.drawn_from is not None, "a rule tells what it drew from"
                token = ruled.tokens[0]
                drawn_from.append(ruled.drawn_from)
            said.append(token)
            if token in self._stop_ids:
                break
        if not said:
            return NO_DRAFT
        return Draft(tuple(said), self.name, MOST_MATCHED, torch.cat(drawn_from) if drawn_from else None)
