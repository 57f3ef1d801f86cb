"""How long answers still are, from those of the same task.

Of every few tokens of an answer it is known how often one ended there, of those that came so far: answers that go on
count as well, so that short ones, which end first, do not pass for all (Kaplan and Meier, 1958).
"""

from __future__ import annotations

from dataclasses import dataclass, field

WIDTH = 8  # tokens of an answer that are counted together
COUNTED = 64  # of these; what is longer is counted with the last
PRIOR = 32.0  # tokens that one answer is believed to have had
MEMORY = 0.98  # of an answer that ended, at the next that ends


@dataclass(slots=True)
class _Task:
    said: list[float] = field(default_factory=lambda: [0.0] * COUNTED)
    ended: list[float] = field(default_factory=lambda: [0.0] * COUNTED)
    left: list[float] = field(default_factory=list)  # that an answer has still; none: to be found again

    def tokens(self, said: int) -> float:
        if not self.left:
            chance = (sum(self.ended) + 1) / (sum(self.said) + PRIOR)
            after = 1 / chance
            for said_here, ended in zip(reversed(self.said), reversed(self.ended), strict=True):
                here = min(1.0, (ended + chance * WIDTH) / (said_here + WIDTH))  # of each token, to be the last
                on = (1 - here) ** WIDTH
                after = (1 - on) / here + on * after
                self.left.append(after)
            self.left.reverse()
        return self.left[min(said // WIDTH, COUNTED - 1)]


class Remaining:
    """Of all tasks of one verifier."""

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}

    def observe(self, task: str, position: int, tokens: int) -> None:
        """So many tokens of an answer from a position on."""
        said, end = self._task(task).said, position + tokens
        while position < end:
            place = position // WIDTH
            upto = min(end, (place + 1) * WIDTH)
            said[min(place, COUNTED - 1)] += upto - position
            position = upto

    def ended(self, task: str, tokens: int) -> None:
        """An answer is over that has so many."""
        one = self._task(task)
        one.said = [MEMORY * count for count in one.said]
        one.ended = [MEMORY * count for count in one.ended]
        one.ended[min(max(0, tokens - 1) // WIDTH, COUNTED - 1)] += 1
        one.left = []

    def _task(self, name: str) -> _Task:
        found = self._tasks.get(name)
        if found is None:
            found = self._tasks[name] = _Task()
        return found

    def tokens(self, task: str, said: int, most: int) -> float:
        """That an answer is expected to have still, which has so many and room for `most` more."""
        one = self._tasks.get(task)
        return min(float(most), one.tokens(said) if one else PRIOR)
