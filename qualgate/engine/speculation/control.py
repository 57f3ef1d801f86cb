"""Costs of passes, and how much of a draft is worth verifying at them.

A pass takes about fixed + sequence × sequences + row × rows seconds. A draft of w tokens adds w rows; what it saves is
whole passes. Costs are learned while it runs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

COST_MEMORY = 0.98  # an observation's weight after each later one: some 50 passes count
DAMPING = 1e-3  # of each step of the costs, in shares of the curvature: what passes do not tell apart stays as it was


@dataclass(frozen=True, slots=True)
class PassCost:
    """Seconds of a pass: once, per sequence, and per row."""

    fixed: float
    sequence: float
    row: float

    def seconds(self, sequences: int, rows: int) -> float:
        """Return the seconds of a pass over `rows` tokens of `sequences` sequences."""
        return self.fixed + self.sequence * sequences + self.row * rows

    def token(self, sequences: int) -> float:
        """Return the seconds per token of plain decoding, in passes of so many sequences."""
        return self.fixed / max(1, sequences) + self.sequence + self.row


# Shares alone matter: the first pass observed sets the scale.
UNSEEN = PassCost(fixed=1e-3, sequence=1e-4, row=1e-4)


class Costs:
    """What a pass costs, learned as passes go by: O(1) a pass.

    Non-negative least squares over relative errors, so that a pass held up by other processes hardly counts; older
    passes are forgotten exponentially. Each estimate is drawn a little towards the one before, so that what the passes
    leave open (plain ones have as many rows as sequences) stays as it was last learned. Passes with chunks of
    prompt are better left out: their rows cost less than a draft's.
    """

    def __init__(self, start: PassCost = UNSEEN) -> None:
        self.now = start
        self._curvature = [[0.0] * 3 for _ in range(3)]
        self._towards = [0.0] * 3
        self._seen = False

    def observe(self, sequences: int, rows: int, seconds: float) -> None:
        """Learn from a pass of `rows` tokens of `sequences` sequences. A pass without a time is ignored."""
        if not (seconds > 0 and 0 < sequences <= rows):
            return
        features = (1 / seconds, sequences / seconds, rows / seconds)
        for i, feature in enumerate(features):
            self._towards[i] = COST_MEMORY * self._towards[i] + feature
            for j, other_feature in enumerate(features):
                self._curvature[i][j] = COST_MEMORY * self._curvature[i][j] + feature * other_feature
        before = (self.now.fixed, self.now.sequence, self.now.row)
        if not self._seen:
            self._seen = True
            scale = seconds / self.now.seconds(sequences, rows)
            self.now = PassCost(*(scale * cost for cost in before))
            return
        damped = [row[:] for row in self._curvature]
        towards = self._towards[:]
        for i in range(3):
            extra = DAMPING * damped[i][i]
            damped[i][i] += extra
            towards[i] += extra * before[i]
        self.now = PassCost(*_non_negative(damped, towards))


def _non_negative(matrix: list[list[float]], towards: list[float]) -> list[float]:
    """Return the x ≥ 0 with the least xᵀ matrix x − 2 towards · x; matrix: symmetric, positive definite, 3 × 3."""
    best, least = [0.0] * 3, 0.0
    for size in (3, 2, 1):
        for free in combinations(range(3), size):
            solution = _solved([[matrix[i][j] for j in free] + [towards[i]] for i in free])
            if min(solution) < 0:
                continue
            x = [0.0] * 3
            for i, coefficient in zip(free, solution, strict=True):
                x[i] = coefficient
            value = -sum(a * b for a, b in zip(towards, x, strict=True))
            if size == 3:
                return x  # nothing bounded is better than the unbounded best
            if value < least:
                best, least = x, value
    return best


def _solved(rows: list[list[float]]) -> list[float]:
    """Solve a positive definite system with its right-hand side in the last column; it needs no pivoting."""
    size = len(rows)
    for i in range(size):
        for lower in range(i + 1, size):
            share = rows[lower][i] / rows[i][i]
            for j in range(i, size + 1):
                rows[lower][j] -= share * rows[i][j]
    x = [0.0] * size
    for i in reversed(range(size)):
        x[i] = (rows[i][size] - sum(rows[i][j] * x[j] for j in range(i + 1, size))) / rows[i][i]
    return x


def window(chances: Sequence[float], cost: PassCost, sequences: int) -> int:
    """Return how many tokens of a draft to verify: the w of most expected tokens a second; 0 is plain decoding.

    chances: for each token of the draft, that it is accepted if those before it were
    sequences: that share the pass, so that a token accepted saves fixed / sequences + sequence + row seconds later on

    Verifying w says 1 + c₁ + c₁c₂ + … tokens (w products) in the seconds of a plain token and of w more rows. It is the
    rate that is chosen and not the seconds saved now: what this draft leaves, a later one saves nearly as well.
    """
    plain = cost.token(sequences)
    best, best_tokens, best_seconds = 0, 1.0, plain
    reached, tokens = 1.0, 1.0
    for w, chance in enumerate(chances, 1):
        reached *= chance
        tokens += reached
        seconds = plain + w * cost.row
        if tokens * best_seconds > best_tokens * seconds:
            best, best_tokens, best_seconds = w, tokens, seconds
    return best
