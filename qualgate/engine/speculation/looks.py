"""Decide whether looking drafts up pays: it runs no model, but its time counts beside a small model's pass."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

ALLOWED = 0.02  # of all seconds that looks may take beyond what they saved
TRIED = 24  # looks before any is left out
MEMORY = 0.99  # of what was taken and saved, at each look
MOST = 480  # passes without a look


@dataclass(slots=True)
class Looks:
    """Time spent and saved by lookups, and of passes: seconds over about the last hundred lookups."""

    took: float = 0.0
    saved: float = 0.0
    passes: float = 0.0
    looks: int = 0

    def look(self, seconds: float) -> None:
        """Count one more lookup and its seconds."""
        self.took, self.saved, self.passes = MEMORY * self.took, MEMORY * self.saved, MEMORY * self.passes
        self.took += seconds
        self.looks += 1

    def rests(self, a_pass: float) -> int:
        """Return how many passes of so many seconds to skip, so that lookups cost at most the allowed share beyond
        their savings."""
        excess = self.took - self.saved - ALLOWED * self.passes
        if self.looks < TRIED or excess <= 0 or not a_pass > 0:
            return 0
        return min(MOST, ceil(excess / (ALLOWED * a_pass)))
