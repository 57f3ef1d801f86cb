"""Text on the cost of a run's requests to servers: the forecast in `plan`, and the sum spent in a report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from qualgate.records import JUDGING, Spent
from qualgate.store.queries import ArmLine
from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted, money_text

if TYPE_CHECKING:
    from qualgate.pipeline.spending import Foreseen, Spending


def foreseen_as_lines(foreseen: Foreseen) -> list[str]:
    """Return the forecast use of servers, its source, and whether the budget suffices; [] if no server is used."""
    if not foreseen.entries:
        return []
    currency, expected = foreseen.budget.currency, foreseen.expected
    lines = [
        f"Servers: at most {_amount(foreseen.most, currency)}, with every answer as long as its limit; the fixed "
        "questions before an arm's first case, and what is asked again after a failure, come on top."
    ]
    if foreseen.judge is not None:
        lines.append(
            f"Of these the judge: at most {_amount(foreseen.judge.most, currency)}, where all pairs differ and an "
            "answer is as many tokens to it as to the model that gave it."
        )
    if expected is not None:
        lines.append(f"Expected of servers: {_amount(expected, currency)}, as run {foreseen.run} took for each answer.")
    elif foreseen.run:
        lines.append("Expected of servers: not known of all of them, as no run has measured them all.")
    if allowed := _allowed(foreseen):
        lines.append(f"Budget: {allowed}. {_reach(foreseen)}")
    return [visible_line(line) for line in lines]


def _reach(foreseen: Foreseen) -> str:
    """Say whether the budget suffices: surely, if answers are as short as is likely, or not."""
    if not _short_of(foreseen, foreseen.most):
        return "It reaches."
    if foreseen.expected is None:
        return "It reaches as long as answers are shorter."
    if lacking := _short_of(foreseen, foreseen.expected):
        return f"It does not reach for {lacking}: the run would stop incomplete (13), and go on with a higher one."
    return "It reaches if answers are as long as in that run."


def foreseen_as_body(foreseen: Foreseen) -> dict[str, Any] | None:
    """Return the same as JSON values; None if no server is used."""
    if not foreseen.entries:
        return None
    return {
        "max_tokens_total": foreseen.budget.max_tokens,
        "max_cost": foreseen.budget.max_cost,
        "currency": foreseen.budget.currency,
        "at_most": _body(foreseen.most),
        "expected": None if foreseen.expected is None else _body(foreseen.expected),
        "measured_in": foreseen.run or None,
        "arms": [{"name": arm.arm, **_spending_body(arm)} for arm in foreseen.arms],
        "judge": None if foreseen.judge is None else _spending_body(foreseen.judge),
    }


def spent_lines(arms: Sequence[ArmLine], judging: Spent | None = None) -> tuple[str, ...]:
    """Return one line on the tokens and cost of each served arm, of the judge and in all; () if none were counted."""
    spent = {arm.name: arm.footprint.spent for arm in arms if arm.footprint and arm.footprint.spent}
    spent |= {JUDGING: judging} if judging else {}
    if not spent:
        return ()
    total = sum(spent.values(), Spent())
    parts = [f"{name} {_amount(amount, amount.currency)}" for name, amount in spent.items()]
    parts += [f"in all {_amount(total, total.currency)}"] if len(spent) > 1 else []
    if total.estimated:
        parts.append(
            f"{counted(total.estimated, 'token')} of these no server counted credibly: they are taken at the most they "
            "can be"
        )
    return (f"asked of servers, probes and what was tried again included: {'; '.join(parts)}",)


def _amount(spent: Spent, currency: str) -> str:
    cost = "" if spent.cost is None else f", {money_text(spent.cost)} {currency}".rstrip()
    return (
        f"{counted(spent.tokens, 'token')} ({spent.prompt:,} read, {spent.answer:,} said) in "
        f"{counted(spent.requests, 'request')}{cost}"
    )


def _allowed(foreseen: Foreseen) -> str:
    budget = foreseen.budget
    tokens = "" if budget.max_tokens is None else counted(budget.max_tokens, "token")
    cost = "" if budget.max_cost is None else f"{money_text(budget.max_cost)} {budget.currency}".rstrip()
    return " and ".join(filter(None, (tokens, cost)))


def _short_of(foreseen: Foreseen, spent: Spent) -> str:
    """Return what the budget does not cover of `spent`, tokens or money; "" if it covers both."""
    budget, cost = foreseen.budget, spent.cost or 0.0
    if budget.max_tokens is not None and spent.tokens > budget.max_tokens:
        return counted(spent.tokens, "token")
    if budget.max_cost is not None and cost > budget.max_cost:
        return f"{money_text(cost)} {budget.currency}".rstrip()
    return ""


def _spending_body(spending: Spending) -> dict[str, Any]:
    expected = None if spending.expected is None else _body(spending.expected)
    return {"at_most": _body(spending.most), "expected": expected}


def _body(spent: Spent) -> dict[str, Any]:
    body = asdict(spent)
    return {"tokens": spent.tokens, **{name: body[name] for name in ("requests", "prompt", "answer", "cost")}}
