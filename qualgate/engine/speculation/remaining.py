"""Predict how long answers still are, from those of the same task.

For every few tokens of an answer it counts how often one ended there, of those that got so far: running answers count
as well, so that short ones, which end first, do not stand for all (Kaplan and Meier, 1958).
"""

from __future__ import annotations

from dataclasses import dataclass, field

WIDTH = 8  # tokens of an answer that are counted together
COUNTED = 64  # of these; what is longer is counted with the last
PRIOR = 32.0  # tokens that one answer is believed to have had
MEMORY = 0.98  # of an answer that ended, at the next that ends


@dataclass(slots=True)
class _Task:
    reached: list[float] = field(default_factory=lambda: [0.0] * COUNTED)
    ended: list[float] = field(default_factory=lambda: [0.0] * COUNTED)
    left: list[float] = field(default_factory=list)  # that an answer has still; none: to be found again

    def tokens(self, length: int) -> float:
        """Return the expected remaining tokens of an answer of so many tokens.

        Within each bin of WIDTH tokens an answer ends at a constant chance per token, estimated from this task's
        answers; `left` caches the result per bin, filled from the last bin backwards.
        """
        if not self.left:
            chance = (sum(self.ended) + 1) / (sum(self.reached) + PRIOR)
            after = 1 / chance
            for reached, ended in zip(reversed(self.reached), reversed(self.ended), strict=True):
                end_chance = min(1.0, (ended + chance * WIDTH) / (reached + WIDTH))  # of each token, to be the last
                survival = (1 - end_chance) ** WIDTH
                after = (1 - survival) / end_chance + survival * after
                self.left.append(after)
            self.left.reverse()
        return self.left[min(length // WIDTH, COUNTED - 1)]


class Remaining:
    """Remaining lengths for all tasks of one verifier."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}

    def observe(self, task: str, position: int, tokens: int) -> None:
        """Count tokens of an answer from a position on."""
        reached_counts, end = self._task(task).reached, position + tokens
        while position < end:
            bin_index = position // WIDTH
            upto = min(end, (bin_index + 1) * WIDTH)
            reached_counts[min(bin_index, COUNTED - 1)] += upto - position
            position = upto

    def ended(self, task: str, tokens: int) -> None:
        """Count an answer that ended with so many tokens."""
        state = self._task(task)
        state.reached = [MEMORY * count for count in state.reached]
        state.ended = [MEMORY * count for count in state.ended]
        state.ended[min(max(0, tokens - 1) // WIDTH, COUNTED - 1)] += 1
        state.left = []

    def _task(self, name: str) -> _Task:
        state = self._tasks.get(name)
        if state is None:
            state = self._tasks[name] = _Task()
        return state

    def tokens(self, task: str, length: int, most: int) -> float:
        """Return the expected remaining tokens of an answer with so many tokens and room for `most` more."""
        state = self._tasks.get(task)
        return min(float(most), state.tokens(length) if state else PRIOR)
