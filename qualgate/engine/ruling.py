"""A rule of acceptance at work in a run whose tokens are drawn: from logits and drafts to what is said.

The default, "keyed", is not here: there each position's draw is the target's own whatever is offered, and an answer is
the same with and without drafts. Under these rules it is of the same distribution (or, where they are lossy, is not).
Chances are known by seed, case and round, so that the same drafts give the same answer again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from qualgate.engine.sampling import Draws, log_total
from qualgate.engine.truncation import cut
from qualgate.speculation.accept import Accepted
from qualgate.speculation.cascade import drafted
from qualgate.speculation.chance import HashedChance
from qualgate.speculation.propose import Draft
from qualgate.speculation.rules import RULES, overlap


class Ruled(NamedTuple):
    """tokens: said, of the draft all but the last; logprobs: of each, nats, the model's own at temperature 1;
    overlaps: Σ min(p, q) of each token of the draft that was tested."""

    tokens: list[int]
    logprobs: list[float]
    overlaps: list[float]


@dataclass(frozen=True, slots=True)
class Ruling:
    """rule: a name of `RULES` other than "keyed"; draws: how the run draws."""

    rule: str
    draws: Draws

    def said(
        self, row: int, round: tuple[int, ...], draft: Draft, logits: torch.Tensor, steered: torch.Tensor | None = None
    ) -> Ruled:
        """What the target says of a draft for a row. logits: float32 [drafted + 1, vocabulary]; steered: these, where
        they are (see `steering`), and tokens are drawn of them; round: see `HashedChance`."""
        target = self._probabilities(logits if steered is None else steered)
        drawn_from = draft.drawn_from
        if drawn_from is not None:  # a draft may have fewer tokens
            drawn_from = torch.nn.functional.pad(drawn_from, (0, target.shape[1] - drawn_from.shape[1]))
        got: Accepted = RULES[self.rule](target, draft.tokens, drawn_from, self._chance(row, round))
        here = logits[: len(got.tokens)].cpu()
        said = torch.tensor(got.tokens)
        logprobs = (here.gather(-1, said[:, None])[:, 0] - log_total(here)).clamp_(max=0.0)
        return Ruled(list(got.tokens), logprobs.tolist(), _overlaps(target, draft.tokens, drawn_from, got.count))

    def drafted(
        self, row: int, round: tuple[int, ...], below: Draft, logits: torch.Tensor, kind: str
    ) -> tuple[Draft, list[float]]:
        """What a draft model says of the draft below it, with the distributions that it was drawn from; and Σ min(p, q)
        of each token of the one below that was tested."""
        own = self._probabilities(logits)
        said = drafted(self.rule, own, below, self._chance(row, round), kind)
        return said, _overlaps(own, below.tokens, below.drawn_from, len(said.tokens) - 1)

    def _probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """float64 [n, vocabulary] on the CPU, token by token a rule is Python: of each token to be drawn, after
        temperature and cuts."""
        sampling = self.draws.sampling
        return cut(logits.cpu().double() / sampling.temperature, sampling).softmax(-1)

    def _chance(self, row: int, round: tuple[int, ...]) -> HashedChance:
        return HashedChance(seed=self.draws.seed, case=int(self.draws.cases[row]), round=round)


def _overlaps(
    target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None, accepted: int
) -> list[float]:
    """Of each token tested: those that were accepted, and the first that was not."""
    tested = min(accepted + 1, len(draft))
    rows = None if drawn_from is None else drawn_from[:tested]
    return overlap(target[: tested + 1], draft[:tested], rows).tolist()
