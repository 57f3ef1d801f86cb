"""Print a trend on a terminal: a line per metric, with the nights as marks, and the falls told from noise."""

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
    """Print trends and flaky cases to stdout, with colours only on a terminal."""
    console = screen.console()
    for trend in trends:
        watched, fallen = trend.watched, falls(trend)
        state = ("fallen", "bold red") if fallen else ("no fall", "green")
        console.print(Text.assemble((f"{visible_line(watched.arm)}  {watched.metric}", "bold"), "  ", state))
        means = watched.means
        console.print(indented(Text(f"{_marks(means)}  {100 * means[0]:.1f} → {100 * means[-1]:.1f} %")))
        console.print(indented(Text(held_against(trend), style="dim")))
        for fall in fallen:
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
    """Return a line on a flaky case: the case, the arm, and on how many nights it changed."""
    where = f"{visible_line(case.evalset)}/{visible_line(case.case_id)}"
    return f"{where}  {visible_line(case.arm)}: another answer on {case.changed} of {counted(case.pairs, 'night')}"


def quarantine_line(case: Flaky) -> str:
    """Return the case's line for a gate file's quarantine, with owner and date to be filled in."""
    reason = f"another answer on {case.changed} of {case.pairs} unchanged nights"
    return (
        f"{{case: {_yaml(case.case_id)}, evalset: {_yaml(case.evalset)}, owner: WHO, expires: DATE, reason: {reason}}}"
    )


def trend_as_json(trends: Sequence[ArmTrend], flaky: Sequence[Flaky]) -> dict[str, Any]:
    """Return JSON values: every night's mean, p and evidence; falls; all flaky cases."""
    return {
        "trends": [
            {
                "arm": arm.watched.arm,
                "metric": arm.watched.metric,
                "approved_by": arm.watched.approved_by,
                "other_cases_before": arm.watched.other_cases,
                "method": arm.trend.method,
                "threshold": arm.trend.threshold,
                "nights": [
                    {"run": run, "began": began, "mean": mean, "p": p, "log_evidence": evidence}
                    for run, began, mean, p, evidence in zip(
                        arm.watched.run_ids, arm.watched.began, arm.watched.means, (None, *arm.trend.p),
                        (None, *(value if value > float("-inf") else None for value in arm.trend.log_evidence)),
                        strict=True,
                    )
                ],
                "falls": falls(arm),
            }
            for arm in trends
        ],
        "flaky": [
            {"arm": case.arm, "evalset": case.evalset, "case": case.case_id, "changed": case.changed, "of": case.pairs}
            for case in flaky
        ],
    }  # fmt: skip


def _marks(means: Sequence[float]) -> str:
    newest = means[-SHOWN:]
    low, high = min(newest), max(newest)
    top = len(MARKS) - 1
    return "".join(MARKS[top if high == low else round(top * (mean - low) / (high - low))] for mean in newest)


def held_against(trend: ArmTrend) -> str:
    """Return the number of nights, the reference run, and who approved it."""
    watched = trend.watched
    by = f"approved by {visible_line(watched.approved_by)}" if watched.approved_by else "the first that is known"
    nights = counted(len(watched.run_ids) - 1, "night")
    caveat = "; nights before asked other cases, or were scored otherwise" if watched.other_cases else ""
    return f"{nights} against the run of {watched.began[0][:10]}, {by}{caveat}"


def _yaml(text: str) -> str:
    return text if text.replace("-", "").replace("_", "").isalnum() and not text.isdecimal() else repr(text)
