"""A run's drafts: who proposes them, how much of each is verified, and what passes and drafts teach of that."""

from __future__ import annotations

from collections.abc import Sequence

from qualgate.engine.schedule import Part, Stream
from qualgate.speculation.control import Acceptance, Costs, window
from qualgate.speculation.propose import Draft, Proposer

MOST = 32  # tokens of a draft
BACK = 4  # tokens of a known answer that are said before a request is believed to have come back to it


class Drafting:
    """What one run has learned of its drafts."""

    def __init__(self, proposer: Proposer) -> None:
        self._proposer = proposer
        self._costs, self._acceptance = Costs(), Acceptance()
        self._drafts: dict[int, Draft] = {}
        self._back: set[int] = set()

    def draft(self, one: Stream, going: int) -> Sequence[int]:
        """What is to be verified of the draft for `one`, in a pass that `going` streams share."""
        draft = self._proposer.propose(one.index, one.said, MOST)
        if not draft.tokens:
            return ()
        self._drafts[one.index] = draft
        return draft.tokens[: window(self._acceptance.chances(draft), self._costs.now, going)]

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

    def passed(self, parts: Sequence[Part], seconds: float) -> None:
        """A pass is over. One that read tells nothing of what decoding costs."""
        rows = sum(len(part.tokens) for part in parts)
        if rows == sum(part.wants for part in parts) and not any(part.stream.forced for part in parts):
            self._costs.observe(len(parts), rows, seconds)
