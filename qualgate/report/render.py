"""A report as Markdown, a plan as text, and writing either so that no half file is ever seen."""

from __future__ import annotations

import html
import json
import os
import re
import tempfile
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from qualgate.errors import UsageError
from qualgate.numbers import bounds_text, difference_text, flips_text, size_text, value_text
from qualgate.records import Comparison, Plan
from qualgate.report.planning import policy_as_body, time_text
from qualgate.visible import visible, visible_line

if TYPE_CHECKING:
    from qualgate.gate.planner import PlannedPolicy
    from qualgate.plan import ArmForecast
    from qualgate.report.summary import Report

# What can begin something in Markdown, a bare address among it, which many readers make a link.
_MARKS = re.compile(r"[\\`*_{}\[\]#!|~$^]|^[-+=]|:(?=//)|(?<=www)\.", re.IGNORECASE)
TEXT_LIMIT = 600  # characters of a prompt or answer quoted in Markdown


def write_atomically(path: Path, text: str) -> None:
    """Write a file whole or not at all (temporary file beside it, then rename)."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
                file.write(text if text.endswith("\n") else text + "\n")
            os.chmod(temporary, 0o644)
            os.replace(temporary, path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror}); choose a folder you may write to.") from None


# -------------------------------------------------------------------------------------------------------- Markdown


def report_as_markdown(report: Report) -> str:
    """The whole report. Depends on stored evidence alone, so the same evidence gives the same bytes."""
    lines = [f"# qualgate report: run {escaped(report.run.run_id)}", ""]
    lines += ["| variant | verdict | reason |", "|---|---|---|"]
    lines += [_row(v.variant, v.word, v.reasons[0]) for v in report.verdicts]
    sets = ", ".join(f"{escaped(s.name)} v{escaped(s.version)} ({s.cases})" for s in report.run.evalsets)
    lines += ["", f"Evalsets: {sets}.", "", "## Arms", ""]
    lines += [
        "| arm | weights | on disk | in memory | bits a weight | kernel | done | errors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm in report.run.arms:
        size = arm.footprint
        sizes = (
            (size_text(size.bytes_on_disk), size_text(size.bytes_in_memory), f"{size.effective_bits:.2f}")
            if size
            else ("–", "–", "–")
        )
        done = (f"{arm.done} of {arm.expected}", str(arm.errors))
        lines.append(_row(arm.name, arm.weights, *sizes, ", ".join(arm.kernels) or "–", *done))
    for verdict in report.verdicts:
        lines += ["", f"## {escaped(verdict.variant)}: {escaped(verdict.word)}", ""]
        lines += [f"- {escaped(reason)}" for reason in verdict.reasons]
        lines += ["", "| rule | slice | tier | n | baseline | variant | difference [bounds] | lost / gained | result |"]
        lines += ["|---|---|---|---|---|---|---|---|---|"]
        lines += [_comparison_row(comparison) for comparison in verdict.comparisons]
        if verdict.drift:
            lines += ["", f"Drift (ranks and warns): {escaped('; '.join(drift_texts(verdict.drift)))}."]
        flips = report.flips.get(verdict.variant, ())
        if flips:
            lines += ["", "Answers that were right and are wrong now, the first ones:"]
        for flip in flips:
            case = escaped(f"{flip.evalset}/{flip.case_id}")
            lines += ["", f"**{case}** ({escaped(flip.metric)}): {escaped(flip.reason)}", ""]
            lines += _quoted("baseline", flip.baseline) + _quoted("variant", flip.variant)
    return "\n".join(lines) + "\n"


def _comparison_row(c: Comparison) -> str:
    values = (
        value_text(c.metric, c.baseline),
        value_text(c.metric, c.variant),
        difference_and_bounds(c),
        flips_text(c),
    )
    return _row(c.rule, c.slice, c.tier, str(c.n), *values, c.status)


def difference_and_bounds(comparison: Comparison) -> str:
    bounds = bounds_text(comparison)
    return bounds if comparison.difference is None else f"{difference_text(comparison)} {bounds}"


def drift_texts(drift: dict[str, float | None]) -> list[str]:
    """One short phrase a number: "kl mean 0.0031"."""
    return [
        f"{name.removeprefix('drift.').replace('_', ' ')} {value_text(name, value)}" for name, value in drift.items()
    ]


def escaped(text: str) -> str:
    """Any stored text as one line of Markdown that is only text: a model may have written it."""
    return html.escape(_MARKS.sub(r"\\\g<0>", visible_line(text)), quote=False)


def _row(*cells: str) -> str:
    return f"| {' | '.join(map(escaped, cells))} |"


def _quoted(label: str, text: str) -> list[str]:
    """A code block whose fence is longer than any run of backticks in it, so that nothing in it ends it."""
    shown = visible(text[:TEXT_LIMIT]) + (" … (cut)" if len(text) > TEXT_LIMIT else "")
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 3)
    return [f"{label}:", f"{fence}text", shown, fence, ""]


# ------------------------------------------------------------------------------------------------------------ plans


def plan_as_json(plan: Plan, rows: Sequence[ArmForecast], policy: PlannedPolicy) -> str:
    body = {
        "key": plan.key,
        "arms": [asdict(row) for row in rows],
        "evalsets": [
            {"name": item.name, "version": item.version, "cases": len(item.cases), "sha256": item.sha256}
            for item in plan.evalsets
        ],
        "rules": [rule.id for rule in plan.policy.rules],
        "units": len(plan.expected),
        "seconds": sum(row.seconds for row in rows),
        "policy": policy_as_body(policy),
    }  # fmt: skip
    return json.dumps(body, indent=2)


def plan_as_text(plan: Plan, rows: Sequence[ArmForecast], workers: int) -> str:
    lines = ["evalsets"]
    lines += [f"  {item.name:<16} v{item.version:<6} {len(item.cases):>6} cases" for item in plan.evalsets]
    lines += [
        "",
        f"arms                 weights          cases   prompt tokens   answers, at most   about ({workers} workers)",
    ]
    lines += [
        f"  {row.name:<18} {row.weights:<14} {row.cases:>7} {row.prompt_tokens:>15,} {row.answer_tokens:>18,}   "
        f"{time_text(row.seconds)}"
        for row in rows
    ]
    lines += ["", "rules"]
    lines += [f"  {rule.tier:<11} {rule.id}" for rule in plan.policy.rules]
    total = sum(row.seconds for row in rows)
    lines += [
        "",
        f"{len(plan.expected):,} answers in all, roughly {time_text(total)} (from a probe of this machine's speed).",
    ]
    return "\n".join(lines)
