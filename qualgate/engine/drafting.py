"""The drafts that are verified: how much of each, and what passes and drafts teach of that. At whatever level: a target
verifies drafts as a draft model does that has a draft of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from qualgate.speculation.control import window
from qualgate.speculation.lengths import Learned
from qualgate.speculation.propose import NO_DRAFT, Asked, Draft
from qualgate.speculation.steps import Drafts, step

MOST = 32  # tokens of a draft
BACK = 4  # tokens of a known answer that are said before a request is believed to have come back to it


class Drafting:
    """The drafts of one run, at one level."""

    def __init__(self, drafts: Drafts) -> None:
        self._proposer, self._tokens, self._steps = drafts.proposer, drafts.tokens, drafts.steps
        self._learned = drafts.learned or Learned(drafts.proposer.name)
        self._drafts: dict[int, Draft] = {}
        self._said: dict[int, int] = {}  # of rows that were drafted for, tokens when they were last
        self._back = set[int]()

    def draft(self, asked: Sequence[Asked], going: int) -> dict[int, Sequence[int]]:
        """What is to be verified for rows that may be drafted for, by row, in a pass that `going` texts share."""
        self._drafts = {}
        if not asked:
            return {}
        learned, chosen = self._learned, not self._tokens and self._proposer.runs_model
        most = self._tokens or (learned.lengths.choose(going, MOST) if chosen else MOST)
        if not most:
            return {}
        if chosen:
            asked = learned.lengths.admitted(asked, self._said.keys())
        asked = [one if one.most <= most else replace(one, most=most) for one in asked]
        began = perf_counter()
        drafts = self._proposer.propose(asked)
        if chosen:
            fresh = sum(one.row not in self._said for one in asked)
            learned.lengths.drafted([len(draft.tokens) for draft in drafts], fresh, perf_counter() - began)
        self._said.update({one.row: len(one.said) for one in asked})
        self._drafts = {one.row: draft for one, draft in zip(asked, drafts, strict=True) if draft.tokens}
        if self._tokens or chosen:  # what was paid for is verified
            return {row: draft.tokens for row, draft in self._drafts.items()}
        cost = learned.costs.now
        return {
            row: draft.tokens[: window(learned.acceptance.chances(draft), cost, going)]
            for row, draft in self._drafts.items()
        }

    def offered(self, row: int, tokens: int) -> Draft:
        """Of a row's draft so many tokens, with what they were drawn from."""
        return self._drafts.get(row, NO_DRAFT).cut(tokens)

    def said(self, row: int, position: int, offered: int, tokens: Sequence[int], agreed: int) -> bool:
        """What a row says from `position` of its answer on, where `offered` tokens of its draft were verified and the
        first `agreed` of them are what it says; whether it came back to a known answer so, for the first time."""
        draft = self._drafts.pop(row, NO_DRAFT)
        if self._steps is not None:
            self._steps.append(step(row, position, draft, offered, agreed, len(tokens)))
        if not draft.tokens:
            return False
        self._learned.acceptance.observe(draft, tokens)
        back = draft.kind in ("baseline", "sibling") and tuple(tokens[:BACK]) == draft.tokens[:BACK]
        if not back or len(tokens) < BACK or row in self._back:
            return False
        self._back.add(row)
        return True

    def ended(self, row: int) -> None:
        """A row says nothing more."""
        if tokens := self._said.pop(row, 0):
            self._learned.lengths.answered(tokens)
        self._proposer.ended(row)

    def passed(self, sequences: int, rows: int, seconds: float) -> None:
        """A pass is over that read no prompt: that would tell nothing of what decoding costs."""
        self._learned.costs.observe(sequences, rows, seconds)
        self._learned.lengths.passed(seconds)
