"""Whether it pays to look drafts up: that costs no pass of a model, and beside a small model's pass it counts."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

ALLOWED = 0.02  # of all seconds that looks may take beyond what they saved
TRIED = 24  # looks before any is left out
MEMORY = 0.99  # of what was taken and saved, at each look
MOST = 480  # passes without a look


@dataclass(slots=True)
class Looks:
    """What they took and saved, and what passes took in all: seconds of about the last hundred looks."""

    took: float = 0.0
    saved: float = 0.0
    passes: float = 0.0
    looks: int = 0

    def look(self, seconds: float) -> None:
        """One more, which took so long."""
        self.took, self.saved, self.passes = MEMORY * self.took, MEMORY * self.saved, MEMORY * self.passes
        self.took += seconds
        self.looks += 1

    def rests(self, a_pass: float) -> int:
        """Passes of so many seconds that are to go by without a look, until what looks took beyond what they saved is
        as little as allowed."""
        over = self.took - self.saved - ALLOWED * self.passes
        if self.looks < TRIED or over <= 0 or not a_pass > 0:
            return 0
        return min(MOST, ceil(over / (ALLOWED * a_pass)))
