"""A run's drafts: who proposes them, how much of each is verified, and what passes and drafts teach of that."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.engine.schedule import Part, Stream
from qualgate.speculation.control import Acceptance, Costs, window
from qualgate.speculation.propose import Asked, Draft, Proposer

MOST = 32  # tokens of a draft
BACK = 4  # tokens of a known answer that are said before a request is believed to have come back to it


class Drafting:
    """What one run has learned of its drafts."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self._costs, self._acceptance = Costs(), Acceptance()
        self._drafts: dict[int, Draft] = {}
        self._back: set[int] = set()

    def draft(self, streams: Sequence[Stream], going: int) -> dict[int, Sequence[int]]:
        """What is to be verified of the drafts for `streams`, by index, in a pass that `going` share."""
        asked = [Asked(one.index, one.request.prompt, one.said, min(MOST, one.room)) for one in streams if one.room]
        drafts = zip(asked, self._proposer.propose(asked), strict=True)
        self._drafts = {one.row: draft for one, draft in drafts if draft.tokens}
        cost = self._costs.now
        return {
            row: draft.tokens[: window(self._acceptance.chances(draft), cost, going)]
            for row, draft in self._drafts.items()
        }

    def said(self, one: Stream, tokens: Sequence[int]) -> bool:
        """What `one` said where its draft was proposed, verified or not; whether it came back to a known answer so,
        for the first time."""
        draft = self._drafts.pop(one.index, None)
        if draft is None:
            return False
        self._acceptance.observe(draft, tokens)
        back = draft.kind in ("baseline", "sibling") and tuple(tokens[:BACK]) == draft.tokens[:BACK]
        if not back or len(tokens) < BACK or one.index in self._back:
            return False
        self._back.add(one.index)
        return True

    def ended(self, one: Stream) -> None:
        """`one` says nothing more."""
        self._proposer.ended(one.index)

    def passed(self, parts: Sequence[Part], seconds: float) -> None:
        """A pass is over. One that read tells nothing of what decoding costs."""
        rows = sum(len(part.tokens) for part in parts)
        if rows == sum(part.wants for part in parts) and not any(part.stream.forced for part in parts):
            self._costs.observe(len(parts), rows, seconds)
