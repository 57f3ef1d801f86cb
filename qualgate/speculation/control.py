"""How much of a draft is worth verifying, from what passes took and from what was accepted so far.

A pass takes about fixed + sequence × sequences + row × rows seconds. A draft of w tokens adds w rows; what it saves is
whole passes. The control learns both sides while it runs, and chooses 0 where drafts do not pay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

from qualgate.speculation.propose import Draft

COST_MEMORY = 0.98  # an observation's weight after each later one: some 50 passes count
DAMPING = 1e-3  # of each step of the costs, in shares of the curvature: what passes do not tell apart stays as it was
CHANCE_MEMORY = 0.995  # some 200 tokens of a kind and level
PRIOR_WEIGHT = 4.0  # tokens that the prior counts as
# By level, before anything was seen: as measured for 4-bit variants of the reference model.
PRIOR_CHANCES = (0.2, 0.6, 0.8, 0.8, 0.8, 0.85, 0.85, 0.9, 0.9, 0.95, 0.97)
_LEVELS = (*range(8), *[8] * 8, *[9] * 16, 10)  # tokens that agree without a break -> level
_LAST = len(_LEVELS) - 1


@dataclass(frozen=True, slots=True)
class PassCost:
    """Seconds that a pass takes: once, for each sequence in it, for each row."""

    fixed: float
    sequence: float
    row: float

    def seconds(self, sequences: int, rows: int) -> float:
        """Of a pass over `rows` tokens of `sequences` sequences."""
        return self.fixed + self.sequence * sequences + self.row * rows

    def token(self, sequences: int) -> float:
        """Seconds a token of plain decoding takes, in passes of so many sequences."""
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
        """A pass of `rows` tokens of `sequences` sequences took so long; one that took no time tells nothing."""
        if not (seconds > 0 and 0 < sequences <= rows):
            return
        features = (1 / seconds, sequences / seconds, rows / seconds)
        for i, one in enumerate(features):
            self._towards[i] = COST_MEMORY * self._towards[i] + one
            for j, other in enumerate(features):
                self._curvature[i][j] = COST_MEMORY * self._curvature[i][j] + one * other
        before = (self.now.fixed, self.now.sequence, self.now.row)
        if not self._seen:
            self._seen = True
            scale = seconds / self.now.seconds(sequences, rows)
            self.now = PassCost(*(scale * one for one in before))
            return
        damped = [row[:] for row in self._curvature]
        towards = self._towards[:]
        for i in range(3):
            extra = DAMPING * damped[i][i]
            damped[i][i] += extra
            towards[i] += extra * before[i]
        self.now = PassCost(*_non_negative(damped, towards))


def _non_negative(matrix: list[list[float]], towards: list[float]) -> list[float]:
    """The x ≥ 0 with the least xᵀ matrix x − 2 towards · x; matrix: symmetric, positive definite, 3 × 3."""
    best, least = [0.0] * 3, 0.0
    for size in (3, 2, 1):
        for free in combinations(range(3), size):
            found = _solved([[matrix[i][j] for j in free] + [towards[i]] for i in free])
            if min(found) < 0:
                continue
            x = [0.0] * 3
            for i, one in zip(free, found, strict=True):
                x[i] = one
            value = -sum(a * b for a, b in zip(towards, x, strict=True))
            if size == 3:
                return x  # nothing bounded is better than the unbounded best
            if value < least:
                best, least = x, value
    return best


def _solved(rows: list[list[float]]) -> list[float]:
    """Of a positive definite system, its right-hand side in the last column: no pivoting needed."""
    size = len(rows)
    for i in range(size):
        for below in range(i + 1, size):
            share = rows[below][i] / rows[i][i]
            for j in range(i, size + 1):
                rows[below][j] -= share * rows[i][j]
    x = [0.0] * size
    for i in reversed(range(size)):
        x[i] = (rows[i][size] - sum(rows[i][j] * x[j] for j in range(i + 1, size))) / rows[i][i]
    return x


class Acceptance:
    """The chance that a draft's next token is what the model says, learned for each kind of draft.

    It depends on how many tokens have agreed without a break, those before the draft (`matched`) and those of the draft
    alike: a fork heals or it does not. So it is kept by level: 0 to 7 tokens each, from 8, from 16, from 32. Each is
    the mean of a Beta prior and of what was seen, which is forgotten exponentially.
    """

    def __init__(self) -> None:
        self._seen: dict[str, _Seen] = {}

    def observe(self, draft: Draft, said: Sequence[int]) -> None:
        """Learns from the tokens that the model said where `draft` was proposed.

        Give the draft uncut: what the model said instead of a token that was not verified judges it as well, so it is
        found out without trying that drafts pay again. What was said after the first other token tells nothing.
        """
        seen = self._seen.setdefault(draft.kind, _Seen())
        for agreed, (token, own) in enumerate(zip(draft.tokens, said, strict=False), draft.matched):
            seen.add(_LEVELS[min(agreed, _LAST)], token == own)
            if token != own:
                break

    def chances(self, draft: Draft) -> list[float]:
        """For each token of the draft, the chance that it is accepted if those before it were."""
        seen = self._seen.get(draft.kind)
        by_level = seen.chances if seen else PRIOR_CHANCES
        agreed = range(draft.matched, draft.matched + len(draft.tokens))
        return [by_level[_LEVELS[one] if one < _LAST else -1] for one in agreed]


class _Seen:
    """Of one kind of draft, for each level."""

    def __init__(self) -> None:
        self._hits = [0.0] * len(PRIOR_CHANCES)
        self._all = [0.0] * len(PRIOR_CHANCES)
        self.chances = list(PRIOR_CHANCES)

    def add(self, level: int, hit: bool) -> None:
        self._hits[level] = CHANCE_MEMORY * self._hits[level] + hit
        self._all[level] = CHANCE_MEMORY * self._all[level] + 1
        prior = PRIOR_WEIGHT * PRIOR_CHANCES[level]
        self.chances[level] = (self._hits[level] + prior) / (self._all[level] + PRIOR_WEIGHT)


def window(chances: Sequence[float], cost: PassCost, sequences: int) -> int:
    """How many tokens of a draft to verify: the w of most expected tokens a second; 0 is plain decoding.

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
