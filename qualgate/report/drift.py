"""Drift of a stored run as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted

if TYPE_CHECKING:
    from qualgate.pipeline.run_drift import DriftNumbers, DriftReport

NAMES = {"thought": "thoughts", "tool_name": "tool names", "json_key": "JSON keys", "digit": "digits",
         "end": "end of turn", "elsewhere": "elsewhere"}  # fmt: skip
HEAD = (
    f"  {'KL in nats':<11}{'positions':>10}{'mean ± error':>21}{'p99':>10}{'max':>10}{'same top-1':>16}"  # 80 columns
)


def drift_lines(report: DriftReport) -> list[str]:
    """Return a table for each variant: all positions, then those of each kind of place."""
    lines = [f"run {visible_line(report.run_id)}" + ("" if report.complete else ", not complete: what there is so far")]
    for arm in report.variants:
        silent = f", {arm.silent:,} without drift" if arm.silent else ""
        lines += [
            "",
            f"{visible_line(arm.variant)}: {counted(arm.answers, 'answer')}, "
            f"{counted(arm.overall.clusters, 'cluster')}{silent}",
        ]
        if not arm.answers:
            continue
        lines += [HEAD, _line("all", arm.overall)]
        shown = (kind for kind, numbers in arm.where.items() if kind != "thought" or numbers.positions)
        lines += [_line(NAMES[kind], arm.where[kind]) for kind in shown]
        if arm.parted_in_thought or arm.parted_in_answer:
            lines.append(
                f"  of answers with a thought that part, {arm.parted_in_thought:,} part in the thought, "
                f"{arm.parted_in_answer:,} behind it"
            )
        low, high = (
            "…" if bound is None else f"{bound:.4g}" for bound in (arm.overall.p99_lower, arm.overall.p99_upper)
        )
        lines.append(f"  p99 of all: [{low}, {high}], 95 % each side; of each place: --json")
        if arm.certified is not None:
            lines.append(f"  the baseline was rounded: the mean of all is within {arm.certified:.2g} of the true one")
        if any(numbers.positions and numbers.same_top is None for numbers in arm.where.values()):
            lines.append("  same top-1 was not stored by place when this ran: run again to see it")
        if arm.unplaced:
            unplaced = counted(arm.unplaced, "answer is", "answers are")
            lines.append(f"  {unplaced} in `all` alone: the tokens do not spell the text")
    if report.unavailable:
        lines += ["", f"where it drifts cannot be shown: {visible_line(report.unavailable)}"]
    return lines


def _line(name: str, drift: DriftNumbers) -> str:
    if drift.mean is None:
        return f"  {name:<11}{0:>10}{'–':>21}{'–':>10}{'–':>10}{'–':>16}"
    error = "–" if drift.mean_error is None else f"{drift.mean_error:.3g}"
    mean, top = f"{drift.mean:.4g} ± {error}", _same_top(drift)
    return f"  {name:<11}{drift.positions:>10,}{mean:>21}{drift.p99:>10.4g}{drift.max:>10.4g}{top:>16}"


def _same_top(drift: DriftNumbers) -> str:
    """Return the share of positions whose most likely token is the baseline's, ± its standard error over clusters; or
    "not stored"."""
    # If all positions agree the clustered error is 0 and proves nothing, so the lower bound is shown instead.
    if drift.same_top is None:
        return "not stored"
    if drift.same_top_error == 0 and drift.same_top == 1 and drift.same_top_lower is not None:
        return f"100 %, ≥ {100 * drift.same_top_lower:.1f}"
    error = drift.same_top_error and 100 * drift.same_top_error
    text = "–" if error is None else f"{error:.2f}" if error >= 0.01 else f"{error:.1g}"
    return f"{100 * drift.same_top:.2f} ± {text} %"


def drift_json(report: DriftReport) -> dict[str, Any]:
    """Return the text's content and more as JSON values; null where unknown."""
    return {
        "run": report.run_id,
        "complete": report.complete,
        "unavailable": report.unavailable or None,
        "variants": [{**asdict(arm), "where": None if report.unavailable else asdict(arm)["where"]}
                     for arm in report.variants],
    }  # fmt: skip
