"""The chance that a draft's next token is what its verifier says, learned from what became of earlier ones.

It depends on how many tokens have agreed without a break, those before the draft (`matched`) and those of the draft
alike: a fork heals or it does not. So it is kept by level: 0 to 7 tokens each, from 8, from 16, from 32. Where whoever
drafts tells how surely it drew a token (`Draft.margins`), that tells more, and chances are kept by it as well. Each is
the mean of a Beta prior and of what was seen, which is forgotten exponentially. A row that misses oftener than others,
or a task, has so many times their chance to miss.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import final

from qualgate.engine.speculation.propose import Draft

CHANCE_MEMORY = 0.995  # some 200 tokens of a kind and level
PRIOR_WEIGHT = 4.0  # tokens that the prior counts as
# By level, before anything was seen: as measured for 4-bit variants of the reference model.
PRIOR_CHANCES = (0.2, 0.6, 0.8, 0.8, 0.8, 0.85, 0.85, 0.9, 0.9, 0.95, 0.97)
_LEVELS = (*range(8), *[8] * 8, *[9] * 16, 10)  # tokens that agree without a break -> level
_LAST = len(_LEVELS) - 1
MARGINS = (0.125, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0, 8.0)  # logits; between two, tokens are equally sure
PRIOR_SURE = (0.5, 0.55, 0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 0.97, 0.98, 0.99)
ONES_MEMORY = 0.98  # some 50 tokens of a row; of a task they are forgotten as a kind's are
ONES_WEIGHT = 0.5  # misses that a row, or a task, is believed to have had as often as others


@dataclass(slots=True)
class Misses:
    """Misses of one row or task, and how many others would have had there."""

    seen: float = 0.0
    expected: float = 0.0

    def add(self, expected: float, missed: bool, memory: float) -> None:
        """Count one more token. expected: its chance to be missed."""
        self.seen = memory * self.seen + missed
        self.expected = memory * self.expected + expected

    @property
    def times(self) -> float:
        """Return how many times as often as others it misses."""
        return (self.seen + ONES_WEIGHT) / (self.expected + ONES_WEIGHT)


@final
@dataclass(slots=True)
class Fate:
    """Acceptance of one row's or task's drafts: of tokens by level, and by margin if that is known."""

    by_level: Misses = field(default_factory=Misses)
    by_margin: Misses = field(default_factory=Misses)


class Acceptance:
    """Acceptance of all kinds of drafts that one verifier meets."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}
        self._tasks: dict[tuple[str, str], Fate] = {}

    def observe(self, draft: Draft, verified: Sequence[int], task: str = "", row: Fate | None = None) -> None:
        """Learn from the verifier's tokens at the place of `draft`, for a row of this task.

        Give the draft uncut: the verifier's tokens also judge draft tokens that were not verified, so returning success
        is noticed without a probe. Tokens after the first difference tell nothing.
        """
        kind = self._kinds.setdefault(draft.kind, _Kind())
        task_fate = self._fate(draft.kind, task)
        for index, (token, verified_token) in enumerate(zip(draft.tokens, verified, strict=False)):
            hit = token == verified_token
            level = _LEVELS[min(index + draft.matched, _LAST)]
            _miss(kind.by_level.chances[level], hit, task_fate and task_fate.by_level, row and row.by_level)
            kind.by_level.add(level, hit)
            if index < len(draft.margins):
                sure = bisect_right(MARGINS, draft.margins[index])
                _miss(kind.by_margin.chances[sure], hit, task_fate and task_fate.by_margin, row and row.by_margin)
                kind.by_margin.add(sure, hit)
            if not hit:
                break

    def chances(self, draft: Draft, task: str = "", row: Fate | None = None) -> list[float]:
        """Return, for each token of the draft, the chance that it is accepted if those before it were; by level."""
        return self.ahead(draft.kind, draft.matched, len(draft.tokens), task, row)

    def ahead(self, kind: str, matched: int, tokens: int, task: str = "", row: Fate | None = None) -> list[float]:
        """Return the chances of a draft of this kind that does not exist yet."""
        learned = self._kinds.get(kind)
        by_level = learned.by_level.chances if learned else PRIOR_CHANCES
        times = self._times(kind, task, row, "by_level")
        if times != 1.0:
            by_level = [_missed(chance, times) for chance in by_level]
        return [by_level[_LEVELS[level] if level < _LAST else -1] for level in range(matched, matched + tokens)]

    def sure(self, kind: str, margin: float, task: str = "", row: Fate | None = None) -> float:
        """Return the chance of a token drawn with such a margin, if those before it are accepted."""
        margin_level, learned = bisect_right(MARGINS, margin), self._kinds.get(kind)
        chance = learned.by_margin.chances[margin_level] if learned else PRIOR_SURE[margin_level]
        return _missed(chance, self._times(kind, task, row, "by_margin"))

    def tested(self, kind: str) -> int:
        """Return how many tokens of this kind were observed, none forgotten."""
        learned = self._kinds.get(kind)
        return learned.tested if learned else 0

    def _fate(self, kind: str, task: str) -> Fate | None:
        return self._tasks.setdefault((kind, task), Fate()) if task else None

    def _times(self, kind: str, task: str, row: Fate | None, attribute: str) -> float:
        """Return the factor on the chance of a miss, of a row and its task, 1.0 where neither is known.

        by: the counts to use, "by_level" or "by_margin".
        """
        task_fate = self._tasks.get((kind, task)) if task else None
        return (getattr(task_fate, attribute).times if task_fate else 1.0) * (
            getattr(row, attribute).times if row else 1.0
        )


def prior(matched: int, tokens: int) -> list[float]:
    """Return the prior chances of a draft's tokens, see `Acceptance.chances`."""
    return [PRIOR_CHANCES[_LEVELS[min(place, _LAST)]] for place in range(matched, matched + tokens)]


def _missed(chance: float, times: float) -> float:
    """Return the chance after its complement was multiplied by `times`; at least 0."""
    return max(0.0, 1.0 - times * (1.0 - chance))


def _miss(chance: float, hit: bool, task: Misses | None, row: Misses | None) -> None:
    """Count one more token of a task and a row, each compared with what is known without it."""
    expected = 1.0 - chance
    if task is not None:
        times = task.times
        task.add(expected, not hit, CHANCE_MEMORY)
        expected = min(1.0, times * expected)
    if row is not None:
        row.add(expected, not hit, ONES_MEMORY)


class _Kind:
    """Acceptance of one kind of draft."""

    def __init__(self) -> None:
        self.by_level, self.by_margin = _Seen(PRIOR_CHANCES), _Seen(PRIOR_SURE)

    @property
    def tested(self) -> int:
        return self.by_level.tested


class _Seen:
    """Counts by level or margin."""

    def __init__(self, prior: Sequence[float]) -> None:
        self._prior = prior
        self._hits = [0.0] * len(prior)
        self._all = [0.0] * len(prior)
        self.chances = list(prior)
        self.tested = 0

    def add(self, place: int, hit: bool) -> None:
        """Count one tested token at an index of the levels or margins, and update its chance; older counts fade."""
        self.tested += 1
        self._hits[place] = CHANCE_MEMORY * self._hits[place] + hit
        self._all[place] = CHANCE_MEMORY * self._all[place] + 1
        prior = PRIOR_WEIGHT * self._prior[place]
        self.chances[place] = (self._hits[place] + prior) / (self._all[place] + PRIOR_WEIGHT)
