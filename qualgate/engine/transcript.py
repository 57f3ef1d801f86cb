"""What every row of a batch has said so far, kept in tensors so that a step costs no Python per row."""

from __future__ import annotations

from time import perf_counter, time

import torch

from qualgate.engine.sampling import Draws, Said, say
from qualgate.engine.stopping import Stops
from qualgate.records import FinishReason


class Transcript:
    """tokens, logprobs (nats), margins: [rows, longest]; length, ended, first, last (s from its making): [rows]."""

    def __init__(
        self,
        limits: list[int],
        stop_ids: tuple[int, ...],
        device: torch.device,
        stops: Stops | None = None,
        draws: Draws | None = None,
    ) -> None:
        """draws: None answers greedily."""
        rows, longest = len(limits), max(limits)
        self.began = time()  # s since the epoch, to tell which of two batches came first
        self.started = perf_counter()
        self.limits = torch.tensor(limits, device=device)
        self.stop_ids = torch.tensor(stop_ids, dtype=torch.long, device=device)
        self.tokens = torch.zeros(rows, longest, dtype=torch.long, device=device)
        self.logprobs = torch.zeros(rows, longest, device=device)
        self.margins = torch.zeros(rows, longest, device=device)
        self.length = torch.zeros(rows, dtype=torch.long, device=device)
        self.ended = torch.zeros(rows, dtype=torch.bool, device=device)
        self.stops = stops
        self.draws = draws
        self.stopped = torch.zeros(rows, dtype=torch.bool, device=device)  # by a text of `stops`
        self.finite = torch.ones(rows, dtype=torch.bool, device=device)  # no NaN or infinity in its logits
        self.first = torch.zeros(rows, dtype=torch.float64, device=device)
        self.last = torch.zeros(rows, dtype=torch.float64, device=device)

    def append(self, rows: torch.Tensor, logits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Each of `rows` says a token of its `logits` [rows, vocabulary]: the likeliest, or one drawn.

        Returns the tokens, and which rows go on.
        """
        at, now = self.length[rows], perf_counter() - self.started
        tokens, logprobs, margins, finite = say(self.draws, logits, rows, at)
        self.tokens[rows, at], self.logprobs[rows, at], self.margins[rows, at] = tokens, logprobs, margins
        self.finite[rows] &= finite
        self.first[rows] = torch.where(at == 0, now, self.first[rows])
        self.last[rows] = now
        self.length[rows] = at + 1
        self.ended[rows] = torch.isin(tokens, self.stop_ids)
        self._look_for_stops(rows)
        return tokens, ~self.ended[rows] & ~self.stopped[rows] & (at + 1 < self.limits[rows])

    def _look_for_stops(self, rows: torch.Tensor) -> None:
        """Only the token said last can complete a text: what came before it was looked at, or was a draft's prefix."""
        if self.stops is None:
            return
        for row in rows[~self.ended[rows]].tolist():
            if self.stops.watches(row):
                self.stopped[row] = self.stops.reached(row, self.tokens[row, : self.length[row]].tolist())

    def accept(self, rows: torch.Tensor, would: Said, draft: torch.Tensor, offered: torch.Tensor) -> torch.Tensor:
        """Each of `rows`, silent so far, is offered the first `offered` tokens of `draft` [rows, longest].

        would: [rows, longest], what it would say at position t having read the draft before t. A row says what it would
        have said alone: the draft up to the first token it disagrees with, then its own; or up to its own stop token,
        which need not be one of the draft's model. Returns which rows go on.
        """
        tokens, logprobs, margins, finite = would
        place = torch.arange(draft.shape[1], device=draft.device)
        inside = place < offered[:, None]
        accepted = ((tokens == draft) & inside).long().cumprod(-1).sum(-1)
        length = torch.minimum(accepted + 1, offered)
        stops = torch.isin(tokens, self.stop_ids) & (place < length[:, None])
        ended = stops.any(-1)
        length = torch.where(ended, stops.int().argmax(-1) + 1, length)  # argmax: the first of equals
        said = place < length[:, None]
        width = min(draft.shape[1], self.tokens.shape[1])
        for kept, new in ((self.tokens, tokens), (self.logprobs, logprobs), (self.margins, margins)):
            kept[rows, :width] = torch.where(said, new, 0)[:, :width]
        now = perf_counter() - self.started
        self.finite[rows] = (finite | ~said).all(-1)
        self.first[rows] = self.last[rows] = now
        self.length[rows] = length
        self.ended[rows] = ended
        self._look_for_stops(rows)
        return ~ended & ~self.stopped[rows] & (length < self.limits[rows])

    def finish_reason(self, row: int) -> FinishReason:
        """Why a row that has ended did: its end token, a text it stops at, else its limit."""
        return "eos" if self.ended[row] else "stop" if self.stopped[row] else "length"
