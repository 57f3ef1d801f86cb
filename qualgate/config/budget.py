"""The most that a run may spend on servers, and prices of tokens."""

from __future__ import annotations

import re
from typing import Annotated, ClassVar

from pydantic import AfterValidator, Field, WithJsonSchema, model_validator

from qualgate.documents import ABSENT, Written, quote, stated
from qualgate.records import Budget, Price
from qualgate.records.served import PATIENCE

MOST_PRICE, MOST_TOKENS, MOST_COST = 1e9, 10**15, 1e15
WAIT = "([0-9]{1,4})(s|m|h)"
PerMillion = Annotated[float, Field(ge=0, le=MOST_PRICE)]


def _seconds(value: str) -> int:
    if not (match := re.fullmatch(WAIT, value)) or not int(match[1]):
        raise stated(f"`patience` is a number of seconds, minutes or hours such as 90s, 10m or 2h, not {quote(value)}")
    return int(match[1]) * {"s": 1, "m": 60, "h": 3600}[match[2]]


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
    patience: Annotated[str, AfterValidator(_seconds), WithJsonSchema({"type": "string", "pattern": f"^{WAIT}$"})] = (
        ABSENT
    )
    """How long a server that limits how much it is asked, or still loads its model, is waited for in a row without an
    answer, 10 minutes unless you say so. Example: `patience: 30m`
    """

    @model_validator(mode="after")
    def _says_something(self) -> BudgetEntry:
        limits = (self.max_tokens_total, self.max_cost, self.price, self.patience)
        if all(limit is None for limit in limits):
            raise stated("`budget` needs at least one of `max_tokens_total`, `max_cost`, `price` and `patience`")
        return self


def as_price(own: PriceEntry | None, budget: BudgetEntry | None) -> Price | None:
    """The arm's own price, else the budget's; None without either."""
    price = own or (budget.price if budget else None)
    return None if price is None else Price(prompt=price.prompt, answer=price.answer)


def as_patience(budget: BudgetEntry | None) -> float:
    """Patience in seconds."""
    patience = budget.patience if budget else None
    return PATIENCE if patience is None else float(patience)


def as_budget(entry: BudgetEntry | None) -> Budget:
    """The budget as a record; without limits if there is no entry."""
    if entry is None:
        return Budget()
    return Budget(max_tokens=entry.max_tokens_total, max_cost=entry.max_cost, currency=entry.currency or "")
