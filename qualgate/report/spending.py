"""The cost of a run's requests to servers, as `plan` foretells it and a report shows it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from qualgate.escaping import visible_line
from qualgate.formatting import counted, money_text
from qualgate.records import JUDGING, Spent
from qualgate.store.queries import ArmLine

if TYPE_CHECKING:
    from qualgate.pipeline.spending import Foreseen, Spending


def foreseen_as_lines(found: Foreseen) -> list[str]:
    """What servers would be asked, with what that rests on, and whether the budget lets it; [] where none is asked."""
    if not found.entries:
        return []
    currency, expected = found.budget.currency, found.expected
    lines = [
        f"Servers: at most {_amount(found.most, currency)}, with every answer as long as its limit; the fixed "
        "questions before an arm's first case, and what is asked again after a failure, come on top."
    ]
    if found.judge is not None:
        lines.append(
            f"Of these the judge: at most {_amount(found.judge.most, currency)}, where all pairs differ and an answer "
            "is as many tokens to it as to the model that gave it."
        )
    if expected is not None:
        lines.append(f"Expected of servers: {_amount(expected, currency)}, as run {found.run} took for each answer.")
    elif found.run:
        lines.append("Expected of servers: not known of all of them, as no run has measured them all.")
    if allowed := _allowed(found):
        likely = found.most if expected is None else expected
        word = _short_of(found, likely)
        said = "as long as answers are shorter" if expected is None else "as it looks"
        lines.append(
            f"Budget: {allowed}. "
            + (f"It does not reach for {word}: the run would stop incomplete (13), and go on with a higher one."
               if word and expected is not None
               else f"It reaches {said}." if word
               else "It reaches.")
        )  # fmt: skip
    return [visible_line(line) for line in lines]


def foreseen_as_body(found: Foreseen) -> dict[str, Any] | None:
    """The same as JSON; None where none is asked."""
    if not found.entries:
        return None
    return {
        "max_tokens_total": found.budget.max_tokens,
        "max_cost": found.budget.max_cost,
        "currency": found.budget.currency,
        "at_most": _body(found.most),
        "expected": None if found.expected is None else _body(found.expected),
        "measured_in": found.run or None,
        "arms": [{"name": one.arm, **_spending_body(one)} for one in found.arms],
        "judge": None if found.judge is None else _spending_body(found.judge),
    }


def spent_lines(arms: Sequence[ArmLine], judging: Spent | None = None) -> tuple[str, ...]:
    """Return one line on what each served arm's requests, those to a judge and all of them came to; () where none were
    counted."""
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


def _allowed(found: Foreseen) -> str:
    budget = found.budget
    tokens = "" if budget.max_tokens is None else counted(budget.max_tokens, "token")
    cost = "" if budget.max_cost is None else f"{money_text(budget.max_cost)} {budget.currency}".rstrip()
    return " and ".join(filter(None, (tokens, cost)))


def _short_of(found: Foreseen, spent: Spent) -> str:
    budget, cost = found.budget, spent.cost or 0.0
    if budget.max_tokens is not None and spent.tokens > budget.max_tokens:
        return counted(spent.tokens, "token")
    if budget.max_cost is not None and cost > budget.max_cost:
        return f"{money_text(cost)} {budget.currency}".rstrip()
    return ""


def _spending_body(one: Spending) -> dict[str, Any]:
    return {"at_most": _body(one.most), "expected": None if one.expected is None else _body(one.expected)}


def _body(spent: Spent) -> dict[str, Any]:
    body = asdict(spent)
    return {"tokens": spent.tokens, **{name: body[name] for name in ("requests", "prompt", "answer", "cost")}}
