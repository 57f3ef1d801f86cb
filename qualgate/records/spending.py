"""The cost of asking servers, allowed and actual, in tokens and money."""

from __future__ import annotations

from dataclasses import dataclass

MILLION = 1_000_000
JUDGING = "the judge"  # who spends beside the arms, in their ledger; no arm can be called so


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Of a million tokens that a server reads, and of a million that it says, in the budget's currency."""

    prompt: float = 0.0
    answer: float = 0.0

    def of(self, prompt: int, answer: int) -> float:
        """What so many tokens cost."""
        return (prompt * self.prompt + answer * self.answer) / MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What all requests of a run to servers, resumed or not, may come to. None: without a limit."""

    max_tokens: int | None = None  # read and said together
    max_cost: float | None = None
    currency: str = ""  # for people; "": not said


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What requests to an arm, or to a judge, came to. estimated: tokens among them that its server did not count, or
    not credibly, and that are taken at the most they can be. cost: in `currency` ("": not said), None where they have
    no price."""

    requests: int = 0
    prompt: int = 0
    answer: int = 0
    estimated: int = 0
    cost: float | None = None
    currency: str = ""

    @property
    def tokens(self) -> int:
        """Read and said."""
        return self.prompt + self.answer

    def __add__(self, other: Spent) -> Spent:
        """Of both; cost: of what of it has a price."""
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Spent(
            requests=self.requests + other.requests,
            prompt=self.prompt + other.prompt,
            answer=self.answer + other.answer,
            estimated=self.estimated + other.estimated,
            cost=sum(costs) if costs else None,
            currency=self.currency or other.currency,
        )
