"""Collect answers from an engine's events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import time

from qualgate.engine.request import Ended, Event, Read, Reason, Spoken

Watch = Callable[[Spoken | Read], None]


class Answers:
    """Answers by request: tokens, log-probs (nats), margins, times of the first and last token (seconds since the start
    of the run), the longest gap between two tokens (those of one pass arrive together; None with fewer than two), and
    the reason for the end. watch: also called with each `Spoken` and `Read` event."""

    def __init__(self, requests: int, watch: Watch | None = None) -> None:
        """Start with empty answers to so many requests. watch: receives every event as well, if given."""
        self.began = time()  # s since the epoch, to tell which of two batches came first
        self._watch = watch
        self.tokens: list[list[int]] = [[] for _ in range(requests)]
        self.logprobs: list[list[float]] = [[] for _ in range(requests)]
        self.margins: list[list[float]] = [[] for _ in range(requests)]
        self.first = [0.0] * requests
        self.last = [0.0] * requests
        self.max_gap: list[float | None] = [None] * requests
        self.masked: list[float | None] = [None] * requests  # the mean share that a constraint left out, see `Steering`
        self.reasons: list[Reason | None] = [None] * requests

    def __call__(self, event: Event) -> None:
        """Record one event of the run."""
        if isinstance(event, Ended):
            self.reasons[event.request] = event.reason
            return
        if isinstance(event, Spoken):
            new_tokens = zip(event.requests, event.positions, event.tokens, event.logprobs, event.margins, strict=True)
            for request, position, token, logprob, margin in new_tokens:
                if position == 0:
                    self.first[request] = event.seconds
                else:
                    gap = event.seconds - self.last[request]
                    self.max_gap[request] = max(gap, self.max_gap[request] or 0.0)
                self.last[request] = event.seconds
                self.tokens[request].append(token)
                self.logprobs[request].append(logprob)
                self.margins[request].append(margin)
        if self._watch is not None:
            self._watch(event)

    @property
    def broken(self) -> Sequence[int]:
        """Requests whose logits were NaN or infinite."""
        return [request for request, reason in enumerate(self.reasons) if reason == "broken"]
