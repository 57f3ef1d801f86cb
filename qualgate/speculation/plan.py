"""Which rows are drafted for, and how far: the plan by which all answers are expected to end soonest.

A pass takes seconds once, and seconds for each row of it; so does a step of a draft. A draft's token that is accepted
with probability p saves p / τ passes of its row, τ being what a pass says of the row. How much of what passes take once
a row's pass is worth, its share says: where others wait, each row has the same; where nobody does, the batch is over
when its last answer is, so that a row has the chance to be that one. What a further token saves never grows and what it
costs does not fall, so steps are taken for as long as they pay, and of each step the rows that do. With one row this is
the γ of Leviathan et al. (2211.17192, theorem 3.8).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import exp

from qualgate.speculation.control import PassCost

SPREAD = (
    0.4  # of how many passes answers take still, of their mean: of Gumbel's distribution, so that the most is known
)


@dataclass(frozen=True, slots=True)
class Prices:
    """Seconds. once: of the target's pass; row: of each text in it besides; step: of a draft's step, once; drafted,
    verified: of a token, by who drafts and by the target."""

    once: float
    row: float
    step: float
    drafted: float
    verified: float

    @property
    def token(self) -> float:
        """Of a drafted token in all."""
        return self.drafted + self.verified


def prices(target: PassCost, draft: PassCost, a_step: float = 1.0) -> Prices:
    """a_step: tokens that a step of the draft gives a row."""
    return Prices(
        once=target.fixed,
        row=target.sequence + target.row,
        step=draft.fixed / a_step,
        drafted=(draft.sequence + draft.row) / a_step,
        verified=target.row,
    )


def shares_of(passes: Mapping[int, float], sequences: int, *, waits: bool) -> dict[int, float]:
    """Of each row; with those of rows that are not here they sum to 1. passes: that each has still, as is expected;
    sequences: rows in all, of which the others are taken for average; waits: whether others wait for their places."""
    if waits or sequences == 1:
        return dict.fromkeys(passes, 1 / sequences)
    mean = sum(passes.values()) / max(1, len(passes)) or 1.0
    likely = {row: exp(min((count / mean - 1) / SPREAD, 50.0)) for row, count in passes.items()}
    whole = sum(likely.values()) + max(0, sequences - len(passes))
    return {row: one / whole for row, one in likely.items()}


@dataclass(slots=True)
class Plan:
    """drafted: of each row that is drafted for, its tokens; said: what a pass is expected to say of it; steps: its part
    of all steps; once: seconds of a pass and of the steps before it."""

    drafted: dict[int, int]
    said: dict[int, float]
    steps: dict[int, float]
    once: float = 0.0


@dataclass(slots=True)
class Balance:
    """Of a pass and its drafts so far. once: seconds, of the steps too; said: expected tokens of each row, its own one
    included; takes: seconds of each row's rows."""

    price: Prices
    shares: Mapping[int, float]
    once: float
    said: dict[int, float] = field(default_factory=dict)
    takes: dict[int, float] = field(default_factory=dict)

    def saves(self, row: int, gain: float) -> float:
        """Seconds that `gain` more tokens of a row do."""
        takes = self.once * self.shares[row] + self.takes.get(row, self.price.row)
        return takes * gain / self.said.get(row, 1.0)

    def chosen(self, gains: Mapping[int, float]) -> list[int]:
        """The rows for which one more step is worth it, that is expected to gain so many tokens: all that pay for
        themselves, or none."""
        token = self.price.token
        found = {row: saved for row, gain in gains.items() if (saved := self.saves(row, gain) - token) > 0}
        return list(found) if sum(found.values()) > self.price.step else []

    def add(self, row: int, gain: float) -> None:
        """One more token of a row, that is expected to be so much of one."""
        self.said[row] = self.said.get(row, 1.0) + gain
        self.takes[row] = self.takes.get(row, self.price.row) + self.price.token


def best_plan(chances: Mapping[int, Sequence[float]], price: Prices, shares: Mapping[int, float]) -> Plan:
    """chances: of each row that may be drafted for, of its draft's first token, its second, ..., to be accepted if
    those before it were."""
    now, drafted, steps = Balance(price, shares, price.once), dict[int, int](), dict[int, float]()
    reached, place = dict.fromkeys(chances, 1.0), 0
    while reached:
        gains = {row: one * chances[row][place] for row, one in reached.items() if place < len(chances[row])}
        chosen = now.chosen(gains)
        for row in chosen:
            drafted[row] = place + 1
            steps[row] = steps.get(row, 0.0) + 1 / len(chosen)
            now.add(row, gains[row])
        now.once += price.step * bool(chosen)
        reached = {row: gains[row] for row in chosen}
        place += 1
    return Plan(drafted, now.said, steps, now.once)


def saved(plan: Plan, row: int, price: Prices, shares: Mapping[int, float]) -> float:
    """Seconds that drafting for a row saves with each token of its answer."""
    plain = price.once * shares[row] + price.row
    return plain - (plain + price.token * plan.drafted[row] + price.step * plan.steps[row]) / plan.said[row]


def faster(plan: Plan, price: Prices, sequences: int, shares: Mapping[int, float]) -> float:
    """Seconds of plain passes that a pass by this plan is worth, over those that it takes."""
    plain = price.once + price.row * sequences
    worth = plain + sum((price.once * shares[row] + price.row) * (said - 1) for row, said in plan.said.items())
    takes = plan.once + price.row * sequences + price.token * sum(plan.drafted.values())
    return worth / takes if takes > 0 else 1.0
