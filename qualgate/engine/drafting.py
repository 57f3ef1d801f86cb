"""The drafts that are verified: how much of each, and what passes and drafts teach of that. At whatever level: a target
verifies drafts as a draft model does that has a draft of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter

from qualgate.speculation.control import Acceptance, Costs, window
from qualgate.speculation.lengths import Lengths
from qualgate.speculation.propose import NO_DRAFT, Asked, Draft
from qualgate.speculation.steps import Drafts, step

MOST = 32  # tokens of a draft
BACK = 4  # tokens of a known answer that are said before a request is believed to have come back to it


class Drafting:
    """What a verifier has learned of the drafts that it is offered."""

    def __init__(self, drafts: Drafts) -> None:
        self._proposer, self._tokens, self._steps = drafts.proposer, drafts.tokens, drafts.steps
        self._costs, self._acceptance = Costs(), Acceptance()
        self._lengths = Lengths(drafts.proposer.name, self._acceptance, self._costs)
        self._drafts: dict[int, Draft] = {}
        self._known = set[int]()  # rows that were drafted for before
        self._back = set[int]()

    def draft(self, asked: Sequence[Asked], going: int) -> dict[int, Sequence[int]]:
        """What is to be verified for rows that may be drafted for, by row, in a pass that `going` texts share."""
        most = self._tokens or (self._lengths.choose(going, MOST) if self._proposer.runs_model else MOST)
        self._drafts = {}
        if not most or not asked:
            return {}
        asked = [one if one.most <= most else replace(one, most=most) for one in asked]
        began = perf_counter()
        drafts = self._proposer.propose(asked)
        if self._known.issuperset(one.row for one in asked):  # else prompts were read, too
            self._lengths.drafted([len(draft.tokens) for draft in drafts], perf_counter() - began)
        self._known.update(one.row for one in asked)
        self._drafts = {one.row: draft for one, draft in zip(asked, drafts, strict=True) if draft.tokens}
        if self._tokens or self._proposer.runs_model:  # what was paid for is verified
            return {row: draft.tokens for row, draft in self._drafts.items()}
        cost = self._costs.now
        return {
            row: draft.tokens[: window(self._acceptance.chances(draft), cost, going)]
            for row, draft in self._drafts.items()
        }

    def said(self, row: int, position: int, offered: int, tokens: Sequence[int], agreed: int) -> bool:
        """What a row says from `position` of its answer on, where `offered` tokens of its draft were verified and the
        first `agreed` of them are what it says; whether it came back to a known answer so, for the first time."""
        draft = self._drafts.pop(row, NO_DRAFT)
        if self._steps is not None:
            self._steps.append(step(row, position, draft, offered, agreed, len(tokens)))
        if not draft.tokens:
            return False
        self._acceptance.observe(draft, tokens)
        back = draft.kind in ("baseline", "sibling") and tuple(tokens[:BACK]) == draft.tokens[:BACK]
        if not back or len(tokens) < BACK or row in self._back:
            return False
        self._back.add(row)
        return True

    def ended(self, row: int) -> None:
        """A row says nothing more."""
        self._known.discard(row)
        self._proposer.ended(row)

    def passed(self, sequences: int, rows: int, seconds: float) -> None:
        """A pass is over that read no prompt: that would tell nothing of what decoding costs."""
        self._costs.observe(sequences, rows, seconds)
        self._lengths.passed(seconds)
