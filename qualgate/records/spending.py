"""The cost of asking servers, allowed and actual, in tokens and money."""

from __future__ import annotations

from dataclasses import dataclass

MILLION = 1_000_000
JUDGING = "the judge"  # the judge's name in the ledger of arms; no arm can have it


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """Prices of a million prompt tokens and a million answer tokens, in the budget's currency."""

    prompt: float = 0.0
    answer: float = 0.0

    def of(self, prompt: int, answer: int) -> float:
        """Cost of so many tokens."""
        return (prompt * self.prompt + answer * self.answer) / MILLION


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """Limits on all requests of a run to servers, resumed ones included. None: no limit."""

    max_tokens: int | None = None  # read and said together
    max_cost: float | None = None
    currency: str = ""  # for people; "": not said


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """Tokens and cost of requests to an arm or a judge. estimated: tokens that the server did not count credibly,
    assumed at their maximum. cost: in `currency` ("": unknown), None without a price."""

    requests: int = 0
    prompt: int = 0
    answer: int = 0
    estimated: int = 0
    cost: float | None = None
    currency: str = ""

    @property
    def tokens(self) -> int:
        """Prompt and answer tokens."""
        return self.prompt + self.answer

    def __add__(self, other: Spent) -> Spent:
        """Add up both; the cost covers the parts with a price."""
        costs = [cost for cost in (self.cost, other.cost) if cost is not None]
        return Spent(
            requests=self.requests + other.requests,
            prompt=self.prompt + other.prompt,
            answer=self.answer + other.answer,
            estimated=self.estimated + other.estimated,
            cost=sum(costs) if costs else None,
            currency=self.currency or other.currency,
        )
