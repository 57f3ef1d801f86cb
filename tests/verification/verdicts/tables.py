"""Tables of pairs that `decide` judges one by one, and their exact chances.

A verdict on answers that are right or wrong, each by itself, depends on their counts. So a whole evidence of each count
is put to `decide` once, and weighed by its chance. Of n pairs not every count is needed: a word that holds holds with
one more answer gained as well (row `monotone`), so beside so many lost one edge is sought.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import count, repeat
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binom

from qualgate.gate.decide import decide
from qualgate.records import ArmEvidence, Policy, Rule, RunEvidence, UnitEvidence, UnitKey
from tests.verification.verdicts.faults.evidence import identity

ALPHA = 0.05
METRIC = "exact_match"
BOTH_ARMS = ("baseline", "variant")
FORGOTTEN = 1e-10  # chance of all tables on either side that are not asked for in a sum
Rounds = list[dict[str, Any]]


class Cases:
    """The cases of a run: evidence of any scores of them, whose units are made once.

    sets: evalset → cases. labels: (evalset, case) → tags. fields: of (arm, place of the case) → more of its unit.
    """

    def __init__(
        self,
        sets: Mapping[str, int],
        *,
        arms: Sequence[str] = BOTH_ARMS,
        metric: str = METRIC,
        labels: Mapping[tuple[str, str], tuple[str, ...]] | None = None,
        fields: Callable[[str, int], dict[str, Any]] = lambda arm, at: {},
    ) -> None:
        self.ids = [(name, f"{at:05}") for name, size in sets.items() for at in range(size)]
        self.arms, self.metric, self.labels, self.fields = arms, metric, labels, fields
        self.metrics = dict.fromkeys(sets, (metric,))
        self.expected = tuple(UnitKey(arm, *case) for arm in arms for case in self.ids)
        self.made: dict[tuple[str, int, float], UnitEvidence] = {}

    def evidence(self, *scores: NDArray) -> RunEvidence:
        """scores: of each arm, the baseline first; [cases], from 0 to 1."""
        baseline, *variants = (
            ArmEvidence(name=arm, identity=identity(arm), units=tuple(map(self._unit, repeat(arm), count(), values)))
            for arm, values in zip(self.arms, (np.asarray(one, float).tolist() for one in scores), strict=True)
        )
        return RunEvidence(
            run_id="drawn", expected=self.expected, metrics=self.metrics, baseline=baseline, variants=tuple(variants),
            labels=self.labels,
        )  # fmt: skip

    def _unit(self, arm: str, at: int, value: float) -> UnitEvidence:
        if (arm, at, value) in self.made:
            return self.made[arm, at, value]
        given = {"values": {self.metric: value}, "scorers": {self.metric: "1"}, "tokens": 9} | self.fields(arm, at)
        case = self.ids[at]
        unit = UnitEvidence(key=UnitKey(arm, *case), case_hash=f"hash of {case}", status="done", **given)
        if value in (0.0, 1.0):  # others seldom come again
            self.made[arm, at, value] = unit
        return unit


class Edges:
    """The fewest gained beside so many lost, of n pairs, from which on something holds; n − lost + 1: it never does."""

    def __init__(self, n: int, holds: Callable[[int, int], bool]) -> None:
        self.n, self.holds = n, holds
        self.known: dict[int, int] = {}

    def __getitem__(self, lost: int) -> int:
        if lost not in self.known:
            self.known[lost] = self._sought(lost, max((row for row in self.known if row < lost), default=-1))
        return self.known[lost]

    def _sought(self, lost: int, before: int) -> int:
        """From the edge of fewer lost, which never lies above: it rises by about one a row."""
        low = self.known.get(before, 0)
        end, high, step = self.n - lost + 1, low + (lost - before) * (before >= 0), 1
        start = high = min(high, end)
        while high < end and not self.holds(lost, high):
            low, high = high + 1, high + step
            step = 1 if high - start < 8 else 2 * step
        high = min(high, end)
        return low + bisect_left(range(low, high), True, key=lambda gained: self.holds(lost, gained))

    def chance(self, loss: float, disagreement: float, *, forgotten: float = FORGOTTEN, step: int = 1) -> float:
        """P(it holds), where so many lose and disagree: the sum over all tables, row by row.

        At most that: rows at the ends, of which each side is `forgotten` likely, count as if it held on them, and of
        `step` rows those behind the first as if their edge were its.
        """
        lost, gained = (disagreement + loss) / 2, max((disagreement - loss) / 2, 0.0)
        given = min(gained / (1 - lost), 1.0) if lost < 1 else 0.0
        first, last = int(binom.ppf(forgotten, self.n, lost)), int(binom.ppf(1 - forgotten, self.n, lost))
        rows = np.arange(max(first, 0), last + 1)
        edges = np.repeat([self[int(row)] for row in rows[::step]], step)[: len(rows)]
        chances = binom.pmf(rows, self.n, lost)
        return float(chances @ binom.sf(edges - 1, self.n - rows, given) + max(1 - chances.sum(), 0.0))


class Words:
    """What `decide` says of every table (lost, gained) of n cases under one rule on a loss of `margin`.

    The baseline is right on all cases but those gained: then it is never too weak for the rule.
    """

    def __init__(self, n: int, margin: float, alpha: float = ALPHA) -> None:
        self.n, self.cases = n, Cases({"drawn": n})
        self.policy = Policy(rules=(Rule(metric=METRIC, max_drop=margin),), alpha=alpha)
        self.words: dict[tuple[int, int], tuple[str, float]] = {}
        self.approved = Edges(n, lambda lost, gained: self.word(lost, gained)[0] == "approve")
        self.unblocked = Edges(n, lambda lost, gained: self.word(lost, gained)[0] != "block")
        self.may_lose_nothing = Edges(n, lambda lost, gained: self.word(lost, gained)[1] >= 0)

    def word(self, lost: int, gained: int) -> tuple[str, float]:
        """The verdict, and the upper bound of the difference."""
        if (lost, gained) not in self.words:
            evidence = self.cases.evidence(*scores_of(self.n, lost, gained))
            verdict = decide(evidence, self.policy).verdicts[0]
            upper = verdict.comparisons[0].upper
            self.words[lost, gained] = verdict.word, 1.0 if upper is None else upper
        return self.words[lost, gained]

    def approves(self, loss: float, disagreement: float) -> float:
        """P(approve), where so many lose and disagree."""
        return self.approved.chance(loss, disagreement)

    def blocks(self, loss: float, disagreement: float) -> float:
        """P(block) there."""
        return 1 - self.unblocked.chance(loss, disagreement)


def scores_of(n: int, lost: int, gained: int) -> tuple[NDArray, NDArray]:
    """Both arms' scores of n cases: the first ones are lost, the next ones gained, all others right on both sides."""
    before, after = np.ones(n), np.ones(n)
    after[:lost] = 0
    before[lost : lost + gained] = 0
    return before, after


def rate(draws: int, draw: Callable[[], tuple[bool, Callable[[], Any]]], each: int = 10) -> Any:
    """How often something comes of a draw: of the doubtful draws all are decided, of the others one in `each`, which
    then counts for so many. draw: → (is it doubtful?, what decides it: a bool, or an array of them)."""
    total, others = 0, 0
    for _ in range(draws):
        doubtful, decided = draw()
        others += not doubtful
        if doubtful:
            total = total + 1 * decided()
        elif others % each == 1:
            total = total + each * decided()
    return total / draws
