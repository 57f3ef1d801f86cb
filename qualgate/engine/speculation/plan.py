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

from qualgate.engine.speculation.control import PassCost

SPREAD = (
    0.4  # of how many passes answers take still, of their mean: of Gumbel's distribution, so that the most is known
)


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices in seconds. once: of the target's pass; row: per text in it; step: of a draft's step, once; drafted,
    verified: per token, by the drafter and by the target."""

    once: float
    row: float
    step: float
    drafted: float
    verified: float

    @property
    def token(self) -> float:
        """Seconds of a drafted token in all."""
        return self.drafted + self.verified


def prices(target: PassCost, draft: PassCost, a_step: float = 1.0) -> Prices:
    """Return the prices. a_step: tokens per row and step of the draft."""
    return Prices(
        once=target.fixed,
        row=target.sequence + target.row,
        step=draft.fixed / a_step,
        drafted=(draft.sequence + draft.row) / a_step,
        verified=target.row,
    )


def shares_of(passes: Mapping[int, float], sequences: int, *, waits: bool) -> dict[int, float]:
    """Return each row's share; together with the missing rows' they sum to 1. passes: expected for each row; sequences:
    rows in all, the missing ones counted as average; waits: whether others wait for their places."""
    if waits or sequences == 1:
        return dict.fromkeys(passes, 1 / sequences)
    mean = sum(passes.values()) / max(1, len(passes)) or 1.0
    likely = {row: exp(min((count / mean - 1) / SPREAD, 50.0)) for row, count in passes.items()}
    total = sum(likely.values()) + max(0, sequences - len(passes))
    return {row: weight / total for row, weight in likely.items()}


@dataclass(slots=True)
class Plan:
    """A plan. drafted: tokens of each drafted row; expected: tokens per pass of each row; steps: its part of all steps;
    once: seconds of a pass and of the steps before it."""

    drafted: dict[int, int]
    expected: dict[int, float]
    steps: dict[int, float]
    once: float = 0.0


@dataclass(slots=True)
class Balance:
    """A pass and its drafts so far. once: seconds, steps included; expected: tokens of each row, its own one included;
    takes: seconds of each row's rows."""

    price: Prices
    shares: Mapping[int, float]
    once: float
    expected: dict[int, float] = field(default_factory=dict)
    takes: dict[int, float] = field(default_factory=dict)

    def saves(self, row: int, gain: float) -> float:
        """Return the seconds saved by `gain` more tokens of a row."""
        takes = self.once * self.shares[row] + self.takes.get(row, self.price.row)
        return takes * gain / self.expected.get(row, 1.0)

    def chosen(self, gains: Mapping[int, float]) -> list[int]:
        """Return the rows for which one more step pays, given the tokens expected from it; none if the step itself does
        not pay."""
        token = self.price.token
        surplus = {row: saved for row, gain in gains.items() if (saved := self.saves(row, gain) - token) > 0}
        return list(surplus) if sum(surplus.values()) > self.price.step else []

    def add(self, row: int, gain: float) -> None:
        """Add one more token of a row, with its chance."""
        self.expected[row] = self.expected.get(row, 1.0) + gain
        self.takes[row] = self.takes.get(row, self.price.row) + self.price.token


def best_plan(chances: Mapping[int, Sequence[float]], price: Prices, shares: Mapping[int, float]) -> Plan:
    """Return the best plan, adding one token to every row that pays until none does.

    chances: for each row, of each of its draft tokens, to be accepted if those before it were.
    """
    balance, drafted, steps = Balance(price, shares, price.once), dict[int, int](), dict[int, float]()
    reached, index = dict.fromkeys(chances, 1.0), 0
    while reached:
        gains = {row: chance * chances[row][index] for row, chance in reached.items() if index < len(chances[row])}
        chosen = balance.chosen(gains)
        for row in chosen:
            drafted[row] = index + 1
            steps[row] = steps.get(row, 0.0) + 1 / len(chosen)
            balance.add(row, gains[row])
        balance.once += price.step * bool(chosen)
        reached = {row: gains[row] for row in chosen}
        index += 1
    return Plan(drafted, balance.expected, steps, balance.once)


def saved(plan: Plan, row: int, price: Prices, shares: Mapping[int, float]) -> float:
    """Return the seconds saved by drafting for a row, per token of its answer."""
    plain = price.once * shares[row] + price.row
    return plain - (plain + price.token * plan.drafted[row] + price.step * plan.steps[row]) / plan.expected[row]


def faster(plan: Plan, price: Prices, sequences: int, shares: Mapping[int, float]) -> float:
    """Return the seconds of plain passes that a pass by this plan replaces, over those that it takes."""
    plain = price.once + price.row * sequences
    worth = plain + sum((price.once * shares[row] + price.row) * (tokens - 1) for row, tokens in plan.expected.items())
    takes = plan.once + price.row * sequences + price.token * sum(plan.drafted.values())
    return worth / takes if takes > 0 else 1.0
