"""Trends night by night: the nights as marks and as a picture, the falls told from noise, and flaky cases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from qualgate.pipeline.nights.digest import fall_line, falls
from qualgate.pipeline.nights.trends import ArmTrend
from qualgate.report import plots, screen
from qualgate.report.blocks import Figure, Lines, Note, Paste, Section
from qualgate.report.terminal_blocks import print_sections
from qualgate.store.queries import Flaky
from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted

MARKS = "▁▂▃▄▅▆▇█"
SHOWN = 60  # nights, the newest
FLAKY_SHOWN = 10


def print_trend(trends: Sequence[ArmTrend], flaky: Sequence[Flaky]) -> None:
    """Print trends and flaky cases to stdout, with colours only on a terminal."""
    print_sections(screen.console(), trend_sections(trends, flaky))


def trend_sections(trends: Sequence[ArmTrend], flaky: Sequence[Flaky]) -> list[Section]:
    """Return each arm's nights by each metric, in the order given, then the flaky cases."""
    return [*map(_trend, trends), *([_flaky(flaky)] if flaky else [])]


def _trend(trend: ArmTrend) -> Section:
    watched, means = trend.watched, trend.watched.means
    dates = [began[:10] for began in watched.began]
    picture = plots.nights(means, dates, [fall.began for fall in trend.falls])
    caption = f"{100 * means[0]:.1f} → {100 * means[-1]:.1f} %"
    return Section(
        f"{watched.arm} {watched.metric}",
        (
            Figure(picture=picture, caption=caption, lines=(_marks(means),)),
            *(Note(fall_line(fall), kind="alert") for fall in falls(trend)),
            Note(_against(trend), kind="quiet"),
        ),
        word="fallen" if trend.falls else "no fall",
    )


def _flaky(flaky: Sequence[Flaky]) -> Section:
    shown = flaky[:FLAKY_SHOWN]
    lines = [
        f"{case.evalset}/{case.case_id} {case.arm}: another answer on {case.changed} of {counted(case.pairs, 'night')}"
        for case in shown
    ]
    more = [f"and {len(flaky) - len(shown):,} more: --json lists all"] if len(flaky) > len(shown) else []
    advice = "They count in every verdict; `gate.quarantine` names those that should not"
    return Section(
        f"{counted(len(flaky), 'flaky case')}: answers changed though nothing else did",
        (Lines((*lines, *more)), Paste(advice, tuple(f"- {quarantine_line(case)}" for case in shown))),
    )


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


def _against(trend: ArmTrend) -> str:
    """Return the number of nights, the reference run, and who approved it."""
    watched = trend.watched
    by = f"approved by {visible_line(watched.approved_by)}" if watched.approved_by else "the first that is known"
    nights = counted(len(watched.run_ids) - 1, "night")
    caveat = "; nights before asked other cases, or were scored otherwise" if watched.other_cases else ""
    return f"{nights} against the run of {watched.began[0][:10]}, {by}{caveat}"


def _yaml(text: str) -> str:
    return text if text.replace("-", "").replace("_", "").isalnum() and not text.isdecimal() else repr(text)
