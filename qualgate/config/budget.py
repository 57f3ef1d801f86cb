"""What a run may spend on servers, and what their tokens cost."""

from __future__ import annotations

from typing import Annotated, ClassVar

from pydantic import Field, model_validator

from qualgate.documents import ABSENT, Written, stated
from qualgate.records import Budget, Price

MOST_PRICE, MOST_TOKENS, MOST_COST = 1e9, 10**15, 1e15
PerMillion = Annotated[float, Field(ge=0, le=MOST_PRICE)]


class PriceEntry(Written):
    """Of a million tokens; what is left out is not charged."""

    example: ClassVar = "{prompt: 0.15, answer: 0.6}"
    prompt: PerMillion = 0.0
    """Of a million tokens that the server reads. Example: `prompt: 0.15`"""
    answer: PerMillion = 0.0
    """Of a million tokens that it says. Example: `answer: 0.6`"""


class BudgetEntry(Written):
    """What all requests of a run to servers may come to, those to a judge, tried again and resumed ones among them.
    What would not fit is not sent: the run ends incomplete (13), and goes on when the same command is run with a higher
    budget."""

    example: ClassVar = "{max_cost: 5, currency: EUR, price: {prompt: 0.15, answer: 0.6}}"
    max_tokens_total: Annotated[int, Field(ge=1, le=MOST_TOKENS)] = ABSENT
    """Tokens at most, read and said together. Example: `max_tokens_total: 2000000`"""
    max_cost: Annotated[float, Field(gt=0, le=MOST_COST)] = ABSENT
    """Money at most; needs a price of every served arm and of a judge. Example: `max_cost: 5`"""
    price: PriceEntry = ABSENT
    """Of the tokens of served arms, and a judge, without a `price` of their own. Example: `price: {prompt: 0.15,
    answer: 0.6}`
    """
    currency: Annotated[str, Field(min_length=1, max_length=16, pattern=r"^[^\s\x00-\x1f]+$")] = ABSENT
    """What prices and `max_cost` are in, shown beside them. Example: `currency: EUR`"""

    @model_validator(mode="after")
    def _says_something(self) -> BudgetEntry:
        if self.max_tokens_total is None and self.max_cost is None and self.price is None:
            raise stated("`budget` has `max_tokens_total`, `max_cost` or `price`, and here it has none of them")
        return self


def as_price(own: PriceEntry | None, budget: BudgetEntry | None) -> Price | None:
    """An arm's, else the budget's; None where neither is said."""
    said = own or (budget.price if budget else None)
    return None if said is None else Price(prompt=said.prompt, answer=said.answer)


def as_budget(entry: BudgetEntry | None) -> Budget:
    """The record; without limits where there is no entry."""
    if entry is None:
        return Budget()
    return Budget(max_tokens=entry.max_tokens_total, max_cost=entry.max_cost, currency=entry.currency or "")
