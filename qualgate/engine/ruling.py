"""Apply a rule of acceptance in a run with drawn tokens: from logits and drafts to the answer.

The default, "keyed", is elsewhere: there each position's draw is the target's own, so an answer is the same with and
without drafts. Under these rules it has the same distribution (except for lossy ones). Chances are a function of seed,
case and round, so the same drafts give the same answer again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch

from qualgate.engine.sampling import Draws, log_total
from qualgate.engine.speculation.accept import Accepted
from qualgate.engine.speculation.cascade import drafted
from qualgate.engine.speculation.chance import HashedChance
from qualgate.engine.speculation.propose import Draft
from qualgate.engine.speculation.rules import RULES, overlap
from qualgate.engine.truncation import cut


class Ruled(NamedTuple):
    """A rule's result. tokens: all but the last from the draft; logprobs: of each, nats, the model's own at temperature
    1; overlaps: Σ min(p, q) of each tested token of the draft."""

    tokens: list[int]
    logprobs: list[float]
    overlaps: list[float]


@dataclass(frozen=True, slots=True)
class Ruling:
    """rule: a name of `RULES` other than "keyed"; draws: how the run draws."""

    rule: str
    draws: Draws

    def verify(
        self, row: int, round: tuple[int, ...], draft: Draft, logits: torch.Tensor, steered: torch.Tensor | None = None
    ) -> Ruled:
        """Verify a draft for a row by the rule. logits: float32 [drafted + 1, vocabulary]; steered: changed logits to
        draw from (see `steering`), if any; round: see `HashedChance`."""
        target = self._probabilities(logits if steered is None else steered)
        drawn_from = draft.drawn_from
        if drawn_from is not None:  # a draft may have fewer tokens
            drawn_from = torch.nn.functional.pad(drawn_from, (0, target.shape[1] - drawn_from.shape[1]))
        outcome: Accepted = RULES[self.rule](target, draft.tokens, drawn_from, self._chance(row, round))
        token_logits = logits[: len(outcome.tokens)].cpu()
        token_ids = torch.tensor(outcome.tokens)
        logprobs = (token_logits.gather(-1, token_ids[:, None])[:, 0] - log_total(token_logits)).clamp_(max=0.0)
        return Ruled(
            list(outcome.tokens), logprobs.tolist(), _overlaps(target, draft.tokens, drawn_from, outcome.count)
        )

    def drafted(
        self, row: int, round: tuple[int, ...], below: Draft, logits: torch.Tensor, kind: str
    ) -> tuple[Draft, list[float]]:
        """Return a draft model's tokens, given the draft below it, with the distributions that they were drawn from;
        and Σ min(p, q) of each tested token of the draft below."""
        probabilities = self._probabilities(logits)
        draft = drafted(self.rule, probabilities, below, self._chance(row, round), kind)
        return draft, _overlaps(probabilities, below.tokens, below.drawn_from, len(draft.tokens) - 1)

    def _probabilities(self, logits: torch.Tensor) -> torch.Tensor:
        """Return probabilities after temperature and truncation, float64 [n, vocabulary], on the CPU, because a rule is
        Python token by token."""
        sampling = self.draws.sampling
        return cut(logits.cpu().double() / sampling.temperature, sampling).softmax(-1)

    def _chance(self, row: int, round: tuple[int, ...]) -> HashedChance:
        return HashedChance(seed=self.draws.seed, case=int(self.draws.cases[row]), round=round)


def _overlaps(
    target: torch.Tensor, draft: Sequence[int], drawn_from: torch.Tensor | None, accepted: int
) -> list[float]:
    """Return Σ min(p, q) of each tested token: the accepted ones, and the first rejected."""
    tested = min(accepted + 1, len(draft))
    rows = None if drawn_from is None else drawn_from[:tested]
    return overlap(target[: tested + 1], draft[:tested], rows).tolist()
