"""The plan of a run and the planner's forecasts, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from qualgate.records import Plan
from qualgate.report.planned_policy import early_as_lines, policy_as_lines, unforeseen_as_lines
from qualgate.report.screen import WIDEST, fit, indented, table_lines, width
from qualgate.report.spending import foreseen_as_lines
from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted, money_text, size_text, time_text, version_text

if TYPE_CHECKING:
    from qualgate.gate.evidence.quarantine import Held
    from qualgate.pipeline.forecast import Forecast
    from qualgate.pipeline.foretell import Foretold
    from qualgate.pipeline.memory import MemoryNeed

NOTES_SHOWN = 5


def foretold_as_text(forecast: Foretold) -> str:
    """Return the whole forecast: the plan, the policy's rates, the savings of stopping early, and what is unknown."""
    lines = [plan_as_text(forecast.plan, forecast.takes, forecast.workers, forecast.quarantine)]
    lines += map(fit, (_memory(forecast.memory), *foreseen_as_lines(forecast.spending)))
    if forecast.rates is not None:
        lines += ["", *policy_as_lines(forecast.rates, forecast.takes, forecast.after)]
    lines += early_as_lines(forecast.early) if forecast.early is not None else []
    lines += ["", fit(f"Nothing will be approved: {visible_line(forecast.uncounted)}")] if forecast.uncounted else []
    return "\n".join([*lines, *unforeseen_as_lines(forecast.unforeseen)])


def plan_as_text(plan: Plan, takes: Forecast, workers: int, quarantine: Held) -> str:
    """Return what would run, how long it would take and what it would cost."""
    lines = ["evalsets"]
    name_width = max(len(item.name) for item in plan.evalsets)
    for item in plan.evalsets:
        quarantined = sum((item.name, case.id) in quarantine.cases for case in item.cases)
        lines.append(
            f"  {visible_line(item.name):<{name_width}}  {version_text(item.version):<6} "
            f"{counted(len(item.cases), 'case'):>12}{f', {quarantined:,} of them quarantined' if quarantined else ''}"
        )
    if plan.repeats > 1:
        lines.append(f"  {plan.repeats} answers to each case; they are one cluster")
    lines += [fit(f"  {visible_line(note)}") for note in quarantine.notes[:NOTES_SHOWN]]
    if (more := len(quarantine.notes) - NOTES_SHOWN) > 0:
        lines.append(f"  and {counted(more, 'more note')} on the quarantine (--json has all)")
    lines += [fit(f"  nothing could be decided: {visible_line(fault)}") for fault in quarantine.faults]
    lines += ["", *table_lines(_arms(takes, workers, plan.repeats), min(width() or WIDEST, WIDEST)), ""]
    total = f"{counted(len(plan.expected), 'answer')} in all, "
    total += "for a time that is unknown" if takes.seconds is None else f"roughly {time_text(takes.seconds)}"
    return "\n".join([*lines, fit(f"{total}. {_time_source(takes)}"), *map(fit, _money(takes))])


def _arms(takes: Forecast, workers: int, repeats: int) -> Table:
    """Return a table of each arm's cases, tokens, time and, if prices are known, cost."""
    priced = takes.prices is not None
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="")
    heads = ["arms", "weights", "cases", "prompt\ntokens", "answers,\nat most", f"about ({counted(workers, 'worker')})"]
    for index, head in enumerate([*heads, f"cost,\n{takes.prices.currency}"] if takes.prices else heads):
        table.add_column(head, justify="left" if index < 2 else "right", overflow="fold")
    for row in takes.arms:
        prompt_tokens = "unknown" if row.prompt_tokens is None else f"{row.prompt_tokens:,}"
        cells = [f"{row.cases // repeats:,}", prompt_tokens, f"{row.answer_tokens:,}", _time_or(row.seconds)]
        cells += [money_text(row.cost)] if priced else []
        table.add_row(indented(visible_line(row.name)), Text(visible_line(row.weights)), *cells)
    return table


def _time_source(takes: Forecast) -> str:
    """Return the source of the times and answer lengths, arm by arm if they differ."""
    rows_by_source = {
        f"as measured in run {takes.run}": [row for row in takes.arms if row.measured],
        "guessed from a probe of this machine's speed, with answers half as long as their limits; a run measures it":
            [row for row in takes.arms if not row.measured and row.seconds is not None],
        "unknown until a run has measured it, as the probe is of the CPU":
            [row for row in takes.arms if row.seconds is None],
    }  # fmt: skip
    sources = [
        (what, ", ".join(row.name for row in rows) if len(rows) < len(takes.arms) else "")
        for what, rows in rows_by_source.items()
        if rows
    ]
    return visible_line("Time: " + "; ".join(f"{names}: {what}" if names else what for what, names in sources) + ".")


def _money(takes: Forecast) -> list[str]:
    """Return the line on the cost of the run; none without prices. An unknown cost comes with the reason."""
    if takes.prices is None:
        return []
    table = f"{takes.prices.currency}, prices version {takes.prices.version}"
    if takes.cost is None:
        unknown = ", ".join(row.name for row in takes.arms if row.cost is None)
        why = "until a run has measured the seconds that these prices charge"
        if takes.prices.prompt_token and any(row.prompt_tokens is None for row in takes.arms):
            why = "as servers alone can count the tokens of their prompts"
        return [visible_line(f"Cost: unknown {why}, of {unknown} ({table}).")]
    ceiling = f", at most {money_text(takes.most)} with every answer as long as its limit" if takes.most else ""
    return [visible_line(f"Cost: about {money_text(takes.cost)} {table}{ceiling}.")]


def _memory(need: MemoryNeed) -> str:
    """Return the line on the memory that the largest arm needs in each worker."""
    if not need.weights:
        return "Memory: that of no model here; every arm is served."
    drafts = need.drafts.get(need.largest, 0)
    for_drafts = f", {size_text(drafts)} of it to draft" if drafts else ""
    need_text = (
        f"Memory: at least {size_text(need.of(need.largest))} of weights, keys and values ({need.largest}{for_drafts}) "
        "in each of "
    )
    limit = f", of {size_text(need.limit)} that this machine gives" if need.limit else ""
    return visible_line(f"{need_text}{counted(need.workers, 'worker')}{limit}; libraries and work space come on top.")


def _time_or(seconds: float | None) -> str:
    return "unknown" if seconds is None else time_text(seconds)
