"""Count drafts by answer and by place in the draft.

Each proposed token is accepted, tested and rejected, or discarded: never tested because an earlier token was rejected.
A draft has at most one rejected token. Peers count the last two together.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, slots=True, kw_only=True)
class Passes:
    """The passes of one level, one entry per pass of an answer, all int [passes] but `overlap`; see `DraftStep`."""

    answer: NDArray  # 0 .. answers − 1
    proposed: NDArray
    accepted: NDArray
    rejected: NDArray  # 0 or 1
    unverified: NDArray
    overlap: NDArray  # float, NaN where unknown
    answers: int

    def by_answer(self, what: NDArray) -> NDArray:
        """[answers] sums of `what`, one number per pass."""
        return np.bincount(self.answer, what, self.answers)

    @property
    def discarded(self) -> NDArray:
        """[passes]"""
        return self.proposed - self.accepted - self.rejected

    @property
    def verifies(self) -> NDArray:
        """[passes] 1 where there was a draft to verify; else the pass is a plain step."""
        return (self.proposed > 0).astype(int)

    @property
    def known(self) -> NDArray:
        """[passes] 1 where the acceptance probability of the tested tokens is known."""
        return (~np.isnan(self.overlap)).astype(int)

    @property
    def longest(self) -> int:
        """Tokens of the longest verified draft."""
        return int(self.proposed.max(initial=0))

    def tested_at(self, position: int) -> NDArray:
        """[passes] 1 where the draft's token at `place`, from 1, was tested: all before it were accepted."""
        return (self.accepted + self.rejected >= position).astype(int)

    def accepted_at(self, position: int) -> NDArray:
        """[passes] 1 where the token at `place`, from 1, was accepted."""
        return (self.accepted >= position).astype(int)

    def lengths(self) -> NDArray:
        """[longest drafted + 1] number of passes with drafts of 0, 1, … tokens, verified or not."""
        return np.bincount(self.proposed + self.unverified)
