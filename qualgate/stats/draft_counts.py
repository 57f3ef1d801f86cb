"""Counts of drafts by answer and by place in the draft.

Of each token that was proposed one of three things is true: it was accepted, it was tested and failed (rejected), or it
stood behind one that failed and was never tested (discarded). In a draft the first of these may be many, the second is
at most one. Peers fold the last two together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """Of one level, an entry a pass of an answer, all int [passes] but for `overlap`; see `records.DraftStep`."""

    answer: NDArray  # 0 .. answers − 1
    proposed: NDArray
    accepted: NDArray
    rejected: NDArray  # 0 or 1
    unverified: NDArray
    overlap: NDArray  # float, NaN where it was not told
    answers: int

    def by_answer(self, what: NDArray) -> NDArray:
        """[answers] sums of `what`, a number a pass."""
        return np.bincount(self.answer, what, self.answers)

    @property
    def discarded(self) -> NDArray:
        """[passes]"""
        return self.proposed - self.accepted - self.rejected

    @property
    def verifies(self) -> NDArray:
        """[passes] 1 where there was a draft to verify: a pass without one is a plain step."""
        return (self.proposed > 0).astype(int)

    @property
    def known(self) -> NDArray:
        """[passes] 1 where it is known how likely each token that was tested was to be accepted."""
        return (~np.isnan(self.overlap)).astype(int)

    @property
    def longest(self) -> int:
        """Tokens of the longest draft that was verified."""
        return int(self.proposed.max(initial=0))

    def tested_at(self, place: int) -> NDArray:
        """[passes] 1 where the draft's token at `place`, from 1, was tested: all before it were accepted."""
        return (self.accepted + self.rejected >= place).astype(int)

    def accepted_at(self, place: int) -> NDArray:
        """[passes] 1 where the token at `place`, from 1, was accepted."""
        return (self.accepted >= place).astype(int)

    def lengths(self) -> NDArray:
        """[longest drafted + 1] how many passes were given drafts of 0, 1, … tokens, verified or not."""
        return np.bincount(self.proposed + self.unverified)
