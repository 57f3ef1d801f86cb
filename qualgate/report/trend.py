"""A trend on a terminal: a line a metric, with the nights as marks, and what was told from noise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from qualgate.escaping import visible_line
from qualgate.formatting import counted
from qualgate.pipeline.nights.digest import fall_line, falls
from qualgate.pipeline.nights.trends import ArmTrend
from qualgate.report import screen
from qualgate.report.screen import fit, indented
from qualgate.store.queries import Flaky

MARKS = "▁▂▃▄▅▆▇█"
SHOWN = 60  # nights, the newest
FLAKY_SHOWN = 10


def print_trend(trends: Sequence[ArmTrend], flaky: Sequence[Flaky]) -> None:
    """To stdout; colours only on a terminal."""
    console = screen.console()
    for one in trends:
        seen, found = one.watched, falls(one)
        state = ("fallen", "bold red") if found else ("no fall", "green")
        console.print(Text.assemble((f"{visible_line(seen.arm)}  {seen.metric}", "bold"), "  ", state))
        console.print(indented(Text(f"{_marks(seen.means)}  {100 * seen.means[0]:.1f} → {100 * seen.means[-1]:.1f} %")))
        console.print(indented(Text(held_against(one), style="dim")))
        for fall in found:
            console.print(indented(Text(fall_line(fall), style="red")))
    if flaky:
        console.print(Text(fit(f"\n{counted(len(flaky), 'flaky case')}: answers changed though nothing else did")))
        for case in flaky[:FLAKY_SHOWN]:
            console.print(indented(Text(flaky_line(case))))
        if len(flaky) > FLAKY_SHOWN:
            console.print(indented(f"and {len(flaky) - FLAKY_SHOWN:,} more: --json lists all"))
        console.print(Text(fit("They count in every verdict; `gate.quarantine` names those that should not:")))
        for case in flaky[:FLAKY_SHOWN]:
            console.print(Text(f"  - {quarantine_line(case)}"))


def flaky_line(case: Flaky) -> str:
    """Which, of whom, how often."""
    where = f"{visible_line(case.evalset)}/{visible_line(case.case_id)}"
    return f"{where}  {visible_line(case.arm)}: another answer on {case.changed} of {counted(case.pairs, 'night')}"


def quarantine_line(case: Flaky) -> str:
    """As a gate file takes it, owner and date left to a person."""
    reason = f"another answer on {case.changed} of {case.pairs} unchanged nights"
    return (
        f"{{case: {_yaml(case.case_id)}, evalset: {_yaml(case.evalset)}, owner: WHO, expires: DATE, reason: {reason}}}"
    )


def trend_as_json(trends: Sequence[ArmTrend], flaky: Sequence[Flaky]) -> dict[str, Any]:
    """Plain values: every night's mean, p and evidence; falls; all flaky cases."""
    return {
        "trends": [
            {
                "arm": one.watched.arm,
                "metric": one.watched.metric,
                "approved_by": one.watched.approved_by,
                "other_cases_before": one.watched.other_cases,
                "method": one.trend.method,
                "threshold": one.trend.threshold,
                "nights": [
                    {"run": run, "began": began, "mean": mean, "p": p, "log_evidence": evidence}
                    for run, began, mean, p, evidence in zip(
                        one.watched.run_ids, one.watched.began, one.watched.means, (None, *one.trend.p),
                        (None, *(value if value > float("-inf") else None for value in one.trend.log_evidence)),
                        strict=True,
                    )
                ],
                "falls": falls(one),
            }
            for one in trends
        ],
        "flaky": [
            {"arm": case.arm, "evalset": case.evalset, "case": case.case_id, "changed": case.changed, "of": case.pairs}
            for case in flaky
        ],
    }  # fmt: skip


def _marks(means: Sequence[float]) -> str:
    shown = means[-SHOWN:]
    low, high = min(shown), max(shown)
    top = len(MARKS) - 1
    return "".join(MARKS[top if high == low else round(top * (mean - low) / (high - low))] for mean in shown)


def held_against(one: ArmTrend) -> str:
    """How many nights there are, and who approved the one before them."""
    seen = one.watched
    by = f"approved by {visible_line(seen.approved_by)}" if seen.approved_by else "the first that is known"
    nights = counted(len(seen.run_ids) - 1, "night")
    others = "; nights before asked other cases, or were scored otherwise" if seen.other_cases else ""
    return f"{nights} against the run of {seen.began[0][:10]}, {by}{others}"


def _yaml(text: str) -> str:
    return text if text.replace("-", "").replace("_", "").isalnum() and not text.isdecimal() else repr(text)
