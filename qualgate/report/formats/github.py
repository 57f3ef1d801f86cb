"""GitHub Actions: the step summary (Markdown) and annotations (workflow commands), within the runner's limits.

The runner drops a step summary over 1 MiB whole, and shows 10 annotations of a kind in a step, without a word about the
others. We stay at a fifth and at half of that: a step may hold more commands than ours.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from qualgate.errors import EXIT_ORDER, Exit
from qualgate.escaping import visible_line
from qualgate.formatting import counted
from qualgate.records import Verdict
from qualgate.report.arms import choice_line
from qualgate.report.findings import Finding, findings
from qualgate.report.formats.markdown import COMPARISONS_HEAD, comparison_row, escaped, flip_lines, four_arm_lines, row
from qualgate.report.limits import fitting
from qualgate.report.summary import Report

SUMMARY_LIMIT = 200_000  # bytes
RUNNER_LIMIT = 1 << 20  # bytes of all that a step wrote
ANNOTATIONS = 5  # of a kind, the last one of which says how many are hidden
RULES = 100  # of a variant, those not proven first
FLIPS = 20  # quoted, of all variants together
KINDS = {"error": "error", "warning": "warning", "note": "notice"}
SIGNS = {"approve": "✅", "block": "❌", "review": "👀", "undecided": "❔", "invalid": "⛔"}
_NOTE = 400  # bytes kept for saying what was left out


def report_as_step_summary(report: Report, limit: int = SUMMARY_LIMIT) -> str:
    """What matters most first: verdicts, what is blocked before what passed; folded, the reasons and rules of each
    variant, then answers that are wrong now."""
    verdicts = sorted(report.verdicts, key=lambda one: EXIT_ORDER.index(Exit(one.exit)))
    chosen = [] if report.four_arm is None else ["\n".join([*four_arm_lines(report.four_arm), ""])]
    pieces = [_verdicts(report, verdicts), *chosen, *map(_rules, verdicts)]
    flips = [flip for verdict in verdicts for flip in report.flips.get(verdict.variant, ())]
    names = [verdict.variant for verdict in verdicts for _ in report.flips.get(verdict.variant, ())]
    quoted = [
        "\n".join(["", f"{escaped(name)}: {line}", *rest])
        for name, (line, *rest) in zip(names[:FLIPS], map(flip_lines, flips[:FLIPS]), strict=True)
    ]
    if quoted:
        head = "\n<details><summary>Answers that were right and are wrong now, the first ones</summary>\n"
        quoted[0] = head + quoted[0]
    kept = fitting([*pieces, *quoted], limit - _NOTE)
    text = "\n".join([*pieces, *quoted][:kept])
    if kept > len(pieces):
        text += "\n</details>\n"
    left_out = max(0, len(pieces) - max(kept, 1 + len(chosen))), len(flips) - max(0, kept - len(pieces))
    if kept == 0:  # not even the table of verdicts: the one line that a reader needs
        text = f"# qualgate: exit {int(report.exit)}\n"
    if any(left_out):
        text += f"\nNot shown here: {left_out[0]:,} variants' rules and {counted(left_out[1], 'quoted answer')}. "
        text += "They are in the HTML or JSON report.\n"
    return text if text.endswith("\n") else text + "\n"


def report_as_annotations(report: Report) -> str:
    """One workflow command a line, to be printed in a step."""
    found = findings(report)
    lines = []
    for level, kind in KINDS.items():
        mine = [one for one in found if one.level == level]
        shown = mine if len(mine) <= ANNOTATIONS else mine[: ANNOTATIONS - 1]
        lines += [_command(kind, one, report.source.path) for one in shown]
        if len(shown) < len(mine):
            hidden = f"{len(mine) - len(shown):,} more like these are hidden: see the step summary or the HTML report"
            lines.append(f"::{kind} title=qualgate::{_data(hidden)}")
    return "".join(f"{line}\n" for line in lines)


def append_step_summary(report: Report) -> None:
    """To the file that GITHUB_STEP_SUMMARY names, as far as the runner's limit leaves room; else nothing is done."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    path = Path(name)
    there = path.stat().st_size if path.exists() else 0
    text = report_as_step_summary(report, min(SUMMARY_LIMIT, RUNNER_LIMIT - there - 1))
    if there + len(text.encode("utf-8")) < RUNNER_LIMIT:
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)


def _verdicts(report: Report, verdicts: Sequence[Verdict]) -> str:
    lines = [f"## qualgate: run {escaped(report.run.run_id)}", ""]
    if report.warn_only:
        lines += [f"> **Warn only:** the true exit code is **{int(report.exit)}**; the step was told to pass.", ""]
    if not report.verdicts:
        return "\n".join([*lines, "This run is not complete: nothing is decided (exit 13).", ""])
    for remark in report.remarks:
        lines += [f"> **{escaped(remark)}**", ""]
    if report.four_arm is not None:
        lines += [f"**{escaped(choice_line(report.four_arm)[:500])}**", ""]
    lines += ["| variant | verdict | reason |", "|---|---|---|"]
    lines += [row(v.variant, f"{SIGNS.get(v.word, '')} {v.word}", v.reasons[0][:500]) for v in verdicts]
    return "\n".join([*lines, "", f"Exit code {int(report.exit)}.", ""])


def _rules(verdict: Verdict) -> str:
    summary = f"{SIGNS.get(verdict.word, '')} <b>{_in_html(verdict.variant)}</b>: {_in_html(verdict.word)}"
    lines = [f"<details><summary>{summary}</summary>", ""]
    lines += [f"- {escaped(reason[:1000])}" for reason in verdict.reasons[:20]]
    if len(verdict.reasons) > 20:
        lines.append(f"- and {len(verdict.reasons) - 20:,} more")
    every = verdict.comparisons
    shown = sorted(sorted(range(len(every)), key=lambda index: every[index].status == "proven")[:RULES])
    if shown:
        lines += ["", *COMPARISONS_HEAD, *(comparison_row(every[index]) for index in shown)]
    if len(shown) < len(every):
        lines += [
            "",
            f"{counted(len(every) - len(shown), 'more rule is', 'more rules are')} in the HTML or JSON report.",
        ]
    return "\n".join([*lines, "", "</details>", ""])


def _in_html(text: str) -> str:
    """Where Markdown is not read, its escapes would be seen."""
    return escape(visible_line(text))


def _command(kind: str, one: Finding, path: str) -> str:
    line = {} if one.line is None else {"line": str(one.line)}
    properties = {"file": path, **line, "title": one.title}
    said = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {said}::{_data(one.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
