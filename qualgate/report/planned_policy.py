"""Text on how surely a policy would decide, what would change that, and what stopping early saves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table

from qualgate.report.screen import WIDEST, fit, indented, table_lines, width
from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted, money_text, time_text

if TYPE_CHECKING:
    from qualgate.gate.planning.change import Change
    from qualgate.gate.planning.early_stop import UntilSettled
    from qualgate.gate.planning.planner import PlannedPolicy
    from qualgate.pipeline.forecast import Forecast


def policy_as_lines(
    policy: PlannedPolicy, takes: Forecast, early: Mapping[int, UntilSettled] | None = None
) -> list[str]:
    """Return the policy's rates and changes. takes: the forecast of the run as it stands; a change of cases scales it.
    early: the effect of `stop: early` after each of the policy's changes, by index."""
    lines = [*table_lines(_rules(policy), min(width() or WIDEST, WIDEST)), ""]
    sentences = [
        f"The whole policy approves an identical variant in {_rate(policy.approve)} of runs, and blocks in "
        f"{_rate(policy.block)} one that loses twice the smallest margin everywhere.",
        f"Disagreement {_range(policy)} ({policy.source}). Rates are drawn: {policy.draws:,} times, so within "
        f"{300 * policy.error:.1f} points (3 standard errors).",
    ]
    if policy.refused:
        sentences.append(
            "This policy cannot decide, and neither more such cases nor wider margins were found that would let it."
        )
    elif not policy.decidable:
        sentences.append(
            "This policy can hardly decide. What would change that for all rules at once, approving and blocking (a "
            'rule\'s own "cases that would do" are for proving that one):'
        )
    lines += map(fit, sentences)
    for index, change in enumerate(policy.changes):
        lines += ["", *_change(change, policy.answers, takes, (early or {}).get(index))]
    return lines


def _change(change: Change, before: int, takes: Forecast, early: UntilSettled | None) -> list[str]:
    """Return lines on one change to the policy: its rates, then what to write in the gate file. before: answers of the
    plan as it stands. early: the effect of `stop: early` after this change, if known."""
    lines = [
        fit(
            f"  {change.kind}: approves an identical variant in {_rate(change.approve)}, blocks twice the margin in "
            f"{_rate(change.block)}{_cost_of_change(takes, change.answers / before)}"
        )
    ]
    if change.kind not in ("more cases", "repeats"):
        lines.append("    in the gate file, under `gate:`, `rules:`")
        lines += [f"    {line}" for line in change.lines]  # to be pasted, so not wrapped
    else:
        lines += [fit(f"    {visible_line(line)}") for line in change.lines]
    if early is not None and not early.decidable:
        lines.append(fit(f"    and `stop: end`: with `stop: early` it would approve in {_rate(early.approve)} only"))
    return lines


def _cost_of_change(takes: Forecast, factor: float) -> str:
    """Return how much time and money a change adds, as a clause; "" if it needs no more answers. factor: answers after
    it by answers now."""
    if factor <= 1:
        return ""
    seconds = takes.seconds
    duration = f", about {time_text(seconds * factor)} instead of {time_text(seconds)}" if seconds else ""
    if takes.cost is not None and takes.prices is not None:
        money = f"{money_text(takes.cost * factor)} instead of {money_text(takes.cost)} {takes.prices.currency}"
        duration += f" and {money}" if duration else f", about {money}"
    return duration


def _rules(policy: PlannedPolicy) -> Table:
    """Return a table of the rules: how often each is proven or broken, and how many cases would do if that is known."""
    needed = any(rule.needed for rule in policy.rules)
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    heads = ["will it decide?", "cases", "proven if\nidentical", "broken at twice\nthe margin", "cases that\nwould do"]
    for index, head in enumerate(heads if needed else heads[:-1]):
        table.add_column(head, justify="right" if index else "left", overflow="fold")
    for rule in policy.rules:
        name = visible_line(rule.name) + ("" if rule.tier == "critical" else f" ({rule.tier})")
        cells = [_rate(rule.approve), _rate(rule.block), f"{rule.needed:,}" if rule.needed else ""]
        cells = ["–", "–", ""] if rule.approve is None else cells
        table.add_row(
            Group(*(indented(text, by) for text, by in ((name, 2), (rule.note, 4)) if text)),
            f"{rule.n:,}",
            *(cells if needed else cells[:2]),
        )
    return table


def early_as_lines(early: UntilSettled) -> list[str]:
    """Return the forecast savings of `stop: early`."""
    unit = "case" if early.repeats == 1 else "answer"
    lines = [
        "",
        f"stop: early looks at each variant {counted(early.looks, 'time')} at most and stops once it is settled. An "
        f"identical one takes about {early.identical:,.0f} of {counted(early.of, unit)} and is approved in "
        f"{_rate(early.approve)} of runs; one that loses twice the smallest margin everywhere takes about "
        f"{early.twice:,.0f} and is blocked in {_rate(early.block)}. Tests that may be asked at any time need more "
        "cases than one at the end: the rates above are that one's.",
    ]
    if early.waiting:
        lines.append(
            f"These rules are tested once every case is in, so only a block can come early: {', '.join(early.waiting)}."
        )
    if not early.decidable:
        lines.append("Too rarely: with `stop: end` or more cases it is approved more often.")
    return list(map(fit, lines))


def unforeseen_as_lines(unforeseen: Sequence[str]) -> list[str]:
    """Return what the rates leave out."""
    if not unforeseen:
        return []
    return ["", "Not foretold, decided on what is measured:", *(fit(f"  {visible_line(rule)}") for rule in unforeseen)]


def _rate(rate: float | None) -> str:
    return "–" if rate is None else f"{100 * rate:.1f} %"


def _range(policy: PlannedPolicy) -> str:
    rates = [rule.disagreement for rule in policy.rules if rule.disagreement is not None]
    low, high = min(rates), max(rates)
    return f"{100 * low:.1f} %" if high - low < 5e-4 else f"{100 * low:.1f} to {100 * high:.1f} %"
