"""The engine of padded batches, with the common interface: slower than packed passes, for models that these do not
serve.

A row's bits depend on its batch; its tokens do only if two logits nearly tie.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from qualgate.engine.padded.forward import Decoder, open_decoder
from qualgate.engine.padded.step_loop import decode, prefill, read
from qualgate.engine.padded.transcript import Row, Transcript
from qualgate.engine.request import Event, Request, Tally

if TYPE_CHECKING:
    from transformers import PreTrainedModel

    from qualgate.engine.sampling import Draws
    from qualgate.engine.speculation.steps import Drafts
    from qualgate.records import Overflow

ROWS = 64  # of a batch


class PaddedEngine:
    """Transcript requests with `decoder`, batch after batch. Made by `open_padded`."""

    name = "padded"

    def __init__(self, decoder: Decoder) -> None:
        self.head, self.tally = decoder.head, Tally()
        self._decoder = decoder
        self._transcript: Transcript | None = None

    @property
    def overflow(self) -> tuple[Overflow, ...]:
        """See `Engine.overflow`."""
        return self._decoder.overflow

    def abort(self, request: int) -> None:
        """See `Engine.abort`: before the next step."""
        transcript = self._transcript  # the run may end meanwhile
        if transcript is not None:
            transcript.abort(request)

    def run(
        self,
        requests: Sequence[Request],
        drafts: Drafts | None,
        on_event: Callable[[Event], None],
        draws: Draws | None = None,
    ) -> None:
        """See `Engine.run`. drafts: unused, because all rows of a padded batch would wait for the longest draft; only
        the answers in the requests are drafts."""
        self._transcript = transcript = Transcript(requests, self.head, on_event, draws, self.tally)
        try:
            for batch in _batches(transcript.rows):
                pending = read(self._decoder, [row for row in batch if row.request.answer], transcript)
                pending += prefill(self._decoder, [row for row in batch if not row.request.answer], transcript)
                decode(self._decoder, pending, transcript)
        finally:
            self._transcript = None


@contextmanager
def open_padded(model: PreTrainedModel, stored: str = "float32") -> Iterator[PaddedEngine]:
    """A PaddedEngine in inference mode, for the length of the block. stored: what a server stores activations in."""
    with open_decoder(model, stored) as decoder:
        yield PaddedEngine(decoder)


def _batches(rows: Sequence[Row]) -> Iterator[list[Row]]:
    """Yield batches of rows of similar length, longest expected first."""
    ordered = sorted(rows, key=lambda row: -_expected(row.request))
    for start in range(0, len(ordered), ROWS):
        yield ordered[start : start + ROWS]


def _expected(request: Request) -> int:
    return len(request.prompt) + (request.expected or len(request.answer) or request.max_new_tokens)
