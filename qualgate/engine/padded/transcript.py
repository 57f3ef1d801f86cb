"""Progress of a run's requests: from states and logits to tokens and events."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from time import perf_counter

import torch

from qualgate.engine.advance import advance
from qualgate.engine.head import OutputHead
from qualgate.engine.request import Ended, Event, Read, Reason, Request, Spoken, Tally
from qualgate.engine.sampling import Draws, Said, say
from qualgate.engine.steering import choose

LOGITS_AT_ONCE = 2**22  # numbers: 16 MB of float32


@dataclass(slots=True, eq=False)
class Row:
    """A request in progress. generated: token ids; proposed, accepted: see `Ended`; ended: whether it was sent."""

    index: int
    request: Request
    generated: list[int] = field(default_factory=list)
    proposed: int = 0
    accepted: int = 0
    ended: bool = False


class Transcript:
    """The transcript of one run. rows: one per request, in order."""

    def __init__(
        self,
        requests: Sequence[Request],
        head: OutputHead,
        on_event: Callable[[Event], None],
        draws: Draws | None,
        tally: Tally,
    ) -> None:
        """Follow `requests`. on_event: receives the run's events; draws: None for greedy decoding; tally: counts the
        run."""
        self.rows = [Row(index, request, list(request.begun)) for index, request in enumerate(requests)]
        self._head, self._tell, self._draws, self._tally = head, on_event, draws, tally
        self._aborted: deque[int] = deque()  # another thread may fill it
        self._started = perf_counter()

    def abort(self, index: int) -> None:
        """End a request before the next step."""
        self._aborted.append(index)

    def take_out(self) -> None:
        """End aborted requests, wherever they are. Ended ones stay as they are."""
        while self._aborted:
            index = self._aborted.popleft()
            if 0 <= index < len(self.rows) and not self.rows[index].ended:
                self._end(self.rows[index], "abort")

    def say(self, rows: Sequence[Row], logits: torch.Tensor, states: torch.Tensor) -> None:
        """Generate a token for each of `rows` from logits [rows, vocabulary]; states: as in `Spoken`."""
        self._tally.passes += 1
        requests, positions = [row.index for row in rows], [len(row.generated) for row in rows]
        sampled = self._would_say(logits, requests, positions, read=False)
        results = zip(rows, sampled.tokens.tolist(), sampled.finite.tolist(), strict=True)
        reasons: list[Reason | None] = [self._advance(row, (), [token], [finite])[1] for row, token, finite in results]
        self._tell_spoken(requests, positions, sampled, states.contiguous())  # a view would keep all of its pass
        self._end_where(zip(rows, reasons, strict=True))

    def read(self, rows: Sequence[Row], states: torch.Tensor) -> None:
        """Handle rows that have read their answers: each generates the agreed tokens and one of its own, if it is to
        answer.

        states: [tokens of all answers, row after row, ...], the input of the head at each of them.
        """
        self._tally.passes += 1
        would = self._tell_read(rows, states)
        tokens, finite = would.tokens.tolist(), would.finite.tolist()
        spoken: list[tuple[int, int, int]] = []  # request, position, place in `would`
        reasons: list[Reason | None] = []
        first = 0
        for row in rows:
            span = slice(first, first + len(row.request.answer))
            if row.request.max_new_tokens:
                count, reason = self._advance(row, row.request.answer, tokens[span], finite[span])
                spoken += [(row.index, position, first + position) for position in range(count)]
                self._tally.forked += reason is None and tuple(row.generated) != row.request.answer[:count]
            else:
                reason = "length" if all(finite[span]) else "broken"
            reasons.append(reason)
            first = span.stop
        if spoken:
            requests, positions, places = map(list, zip(*spoken, strict=True))
            self._tell_spoken(requests, positions, Said(*(column[places] for column in would)), None)
        self._end_where(zip(rows, reasons, strict=True))

    def _would_say(self, logits: torch.Tensor, requests: Sequence[int], positions: Sequence[int], read: bool) -> Said:
        """Return the model's tokens at the positions. read: they stand in a given answer, not in a generated one."""
        sampled = say(self._draws, logits, requests, positions)
        steered = {
            index: (steering, row.request.answer if read else row.generated)
            for index in dict.fromkeys(requests)
            if (steering := (row := self.rows[index]).request.steering) is not None
        }
        if steered:
            choose(self._draws, logits, requests, positions, steered, sampled)
        return sampled

    def _tell_read(self, rows: Sequence[Row], states: torch.Tensor) -> Said:
        """Return the model's tokens at every position of the answers, sending `Read` events for a few at a time."""
        requests = [row.index for row in rows for _ in row.request.answer]
        positions = [position for row in rows for position in range(len(row.request.answer))]
        answer = torch.tensor([token for row in rows for token in row.request.answer], device=states.device)
        parts: list[Said] = []
        at_once = max(1, LOGITS_AT_ONCE // self._head.vocabulary)
        for start in range(0, len(requests), at_once):
            span = slice(start, start + at_once)
            logits = self._head.logits(states[span])
            parts.append(self._would_say(logits, requests[span], positions[span], read=True))
            self._tell(
                Read(
                    requests=requests[span],
                    positions=positions[span],
                    answer=answer[span],
                    predicted=parts[-1],
                    states=states[span],
                    logits=logits,
                    seconds=self._seconds,
                )
            )
        return Said(*(torch.cat(columns) for columns in zip(*parts, strict=True)))

    def _tell_spoken(
        self, requests: Sequence[int], positions: Sequence[int], sampled: Said, states: torch.Tensor | None
    ) -> None:
        """Send one `Spoken` event for the sampled tokens."""
        self._tell(
            Spoken(
                requests=requests,
                positions=positions,
                tokens=sampled.tokens.tolist(),
                logprobs=sampled.logprobs.tolist(),
                margins=sampled.margins.tolist(),
                states=states,
                seconds=self._seconds,
            )
        )

    def _advance(
        self, row: Row, offered: Sequence[int], would: Sequence[int], finite: Sequence[bool]
    ) -> tuple[int, Reason | None]:
        """Advance a row. Return how many tokens it generated, and the reason if it ended."""
        outcome = advance(row.request, row.generated, offered, would, finite)
        row.generated += outcome.tokens
        self._tally.tokens += len(outcome.tokens)
        row.proposed += len(offered)
        row.accepted += outcome.agreed
        return len(outcome.tokens), outcome.reason

    def _end_where(self, reasons: Iterable[tuple[Row, Reason | None]]) -> None:
        for row, reason in reasons:
            if reason is not None:
                self._end(row, reason)

    def _end(self, row: Row, reason: Reason) -> None:
        """Mark a row as ended, and send its `Ended` event."""
        row.ended = True
        self._tell(
            Ended(
                request=row.index,
                reason=reason,
                seconds=self._seconds,
                proposed=row.proposed,
                accepted=row.accepted,
            )
        )

    @property
    def _seconds(self) -> float:
        return perf_counter() - self._started
