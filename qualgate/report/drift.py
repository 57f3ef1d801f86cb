"""Drift of a stored run as text and as JSON."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from qualgate.escaping import visible_line
from qualgate.formatting import counted

if TYPE_CHECKING:
    from qualgate.pipeline.run_drift import DriftNumbers, DriftReport

NAMES = {"thought": "thoughts", "tool_name": "tool names", "json_key": "JSON keys", "digit": "digits",
         "end": "end of turn", "elsewhere": "elsewhere"}  # fmt: skip
HEAD = (
    f"  {'KL in nats':<11}{'positions':>10}{'mean ± error':>21}{'p99':>10}{'max':>10}{'same top-1':>16}"  # 80 columns
)


def drift_lines(found: DriftReport) -> list[str]:
    """A table for each variant: all positions, then those of each kind of place."""
    lines = [f"run {visible_line(found.run_id)}" + ("" if found.complete else ", not complete: what there is so far")]
    for one in found.variants:
        silent = f", {one.silent:,} without drift" if one.silent else ""
        lines += [
            "",
            f"{visible_line(one.variant)}: {counted(one.answers, 'answer')}, "
            f"{counted(one.overall.clusters, 'cluster')}{silent}",
        ]
        if not one.answers:
            continue
        lines += [HEAD, _line("all", one.overall)]
        shown = (kind for kind, numbers in one.where.items() if kind != "thought" or numbers.positions)
        lines += [_line(NAMES[kind], one.where[kind]) for kind in shown]
        if one.parted_in_thought or one.parted_in_answer:
            lines.append(
                f"  of answers with a thought that part, {one.parted_in_thought:,} part in the thought, "
                f"{one.parted_in_answer:,} behind it"
            )
        low, high = (
            "…" if bound is None else f"{bound:.4g}" for bound in (one.overall.p99_lower, one.overall.p99_upper)
        )
        lines.append(f"  p99 of all: [{low}, {high}], 95 % each side; of each place: --json")
        if one.certified is not None:
            lines.append(f"  the baseline was rounded: the mean of all is within {one.certified:.2g} of the true one")
        if any(numbers.positions and numbers.same_top is None for numbers in one.where.values()):
            lines.append("  same top-1 was not stored by place when this ran: run again to see it")
        if one.unplaced:
            said = counted(one.unplaced, "answer is", "answers are")
            lines.append(f"  {said} in `all` alone: the tokens do not spell the text")
    if found.unavailable:
        lines += ["", f"where it drifts cannot be shown: {visible_line(found.unavailable)}"]
    return lines


def _line(name: str, found: DriftNumbers) -> str:
    if found.mean is None:
        return f"  {name:<11}{0:>10}{'–':>21}{'–':>10}{'–':>10}{'–':>16}"
    error = "–" if found.mean_error is None else f"{found.mean_error:.3g}"
    mean, top = f"{found.mean:.4g} ± {error}", _same_top(found)
    return f"  {name:<11}{found.positions:>10,}{mean:>21}{found.p99:>10.4g}{found.max:>10.4g}{top:>16}"


def _same_top(found: DriftNumbers) -> str:
    """Where all are the same the clustered error is 0 and proves nothing: the bound stands there instead."""
    if found.same_top is None:
        return "not stored"
    if found.same_top_error == 0 and found.same_top == 1 and found.same_top_lower is not None:
        return f"100 %, ≥ {100 * found.same_top_lower:.1f}"
    error = found.same_top_error and 100 * found.same_top_error
    text = "–" if error is None else f"{error:.2f}" if error >= 0.01 else f"{error:.1g}"
    return f"{100 * found.same_top:.2f} ± {text} %"


def drift_json(found: DriftReport) -> dict[str, Any]:
    """All that the text says and more; what is not known is null."""
    return {
        "run": found.run_id,
        "complete": found.complete,
        "unavailable": found.unavailable or None,
        "variants": [{**asdict(one), "where": None if found.unavailable else asdict(one)["where"]}
                     for one in found.variants],
    }  # fmt: skip
