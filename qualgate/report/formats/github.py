"""GitHub Actions: the step summary (Markdown) and annotations (workflow commands), within the runner's limits.

The runner drops a step summary over 1 MiB as a whole, and silently hides annotations beyond 10 of a kind per step.
We stay at a fifth and at half of that, since a step may run other commands too.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from qualgate.errors import EXIT_ORDER, Exit
from qualgate.records import Verdict
from qualgate.report.findings import Finding, findings
from qualgate.report.formats.markdown import block_lines, escaped, flip_lines, row, section_lines
from qualgate.report.four_arms import choice_line, choice_section
from qualgate.report.limits import fitting
from qualgate.report.sections import rules_table
from qualgate.report.summary import Report
from qualgate.text.escaping import visible_line
from qualgate.text.numbers import counted

SUMMARY_LIMIT = 200_000  # bytes
RUNNER_LIMIT = 1 << 20  # bytes of all that a step wrote
ANNOTATIONS = 5  # most of a kind; the last counts the hidden ones
RULES = 100  # most of a variant; proven ones are dropped first
FLIPS = 20  # most quoted, over all variants
KINDS = {"error": "error", "warning": "warning", "note": "notice"}
SIGNS = {"approve": "✅", "block": "❌", "review": "👀", "undecided": "❔", "invalid": "⛔"}
_NOTE = 400  # bytes reserved for the note on what was left out


def report_as_step_summary(report: Report, limit: int = SUMMARY_LIMIT) -> str:
    """Render the step summary within `limit` bytes: verdicts, the worst first; folded, reasons, rules, flips."""
    verdicts = sorted(report.verdicts, key=lambda verdict: EXIT_ORDER.index(Exit(verdict.exit)))
    chosen = (
        [] if report.four_arm is None else ["\n".join([*section_lines(choice_section(report.four_arm), 2)[1:], ""])]
    )
    pieces = [_verdicts(report, verdicts), *chosen, *map(_rules, verdicts)]
    flips = [flip for verdict in verdicts for flip in report.flips.get(verdict.variant, ())]
    names = [verdict.variant for verdict in verdicts for _ in report.flips.get(verdict.variant, ())]
    quoted = [
        "\n".join(["", f"{escaped(name)}: {line}", *more_lines])
        for name, (line, *more_lines) in zip(names[:FLIPS], map(flip_lines, flips[:FLIPS]), strict=True)
    ]
    if quoted:
        head = "\n<details><summary>Answers that were right and are wrong now, the first ones</summary>\n"
        quoted[0] = head + quoted[0]
    fits = fitting([*pieces, *quoted], limit - _NOTE)
    text = "\n".join([*pieces, *quoted][:fits])
    if fits > len(pieces):
        text += "\n</details>\n"
    # (variants' rules, flips); the table of verdicts and the choice are none of these.
    left_out = max(0, len(pieces) - max(fits, 1 + len(chosen))), len(flips) - max(0, fits - len(pieces))
    if fits == 0:  # not even the table of verdicts fits
        text = f"# qualgate: exit {int(report.exit)}\n"
    if any(left_out):
        text += f"\nNot shown here: {left_out[0]:,} variants' rules and {counted(left_out[1], 'quoted answer')}. "
        text += "They are in the HTML or JSON report.\n"
    return text if text.endswith("\n") else text + "\n"


def report_as_annotations(report: Report) -> str:
    """Render one workflow command per line, to be printed in a step."""
    all_findings = findings(report)
    lines = []
    for level, kind in KINDS.items():
        level_findings = [finding for finding in all_findings if finding.level == level]
        shown = level_findings if len(level_findings) <= ANNOTATIONS else level_findings[: ANNOTATIONS - 1]
        lines += [_command(kind, finding, report.source.path) for finding in shown]
        if len(shown) < len(level_findings):
            hidden_count = len(level_findings) - len(shown)
            message = f"{hidden_count:,} more like these are hidden: see the step summary or the HTML report"
            lines.append(f"::{kind} title=qualgate::{_data(message)}")
    return "".join(f"{line}\n" for line in lines)


def append_step_summary(report: Report) -> None:
    """Append the summary to the file in GITHUB_STEP_SUMMARY, if it is set and the runner's limit leaves room."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    path = Path(name)
    written = path.stat().st_size if path.exists() else 0
    text = report_as_step_summary(report, min(SUMMARY_LIMIT, RUNNER_LIMIT - written - 1))
    if written + len(text.encode("utf-8")) < RUNNER_LIMIT:
        with path.open("a", encoding="utf-8", errors="backslashreplace") as file:
            file.write(text)


def _verdicts(report: Report, verdicts: Sequence[Verdict]) -> str:
    """Render the heading, the remarks and a table of the verdicts, or the sentence that nothing is decided yet."""
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
    """Render a variant's first reasons and rules, folded. If it has more than RULES rules, proven ones are left out
    first."""
    summary = f"{SIGNS.get(verdict.word, '')} <b>{_in_html(verdict.variant)}</b>: {_in_html(verdict.word)}"
    lines = [f"<details><summary>{summary}</summary>", ""]
    lines += [f"- {escaped(reason[:1000])}" for reason in verdict.reasons[:20]]
    if len(verdict.reasons) > 20:
        lines.append(f"- and {len(verdict.reasons) - 20:,} more")
    comparisons = verdict.comparisons
    indices = sorted(sorted(range(len(comparisons)), key=lambda index: comparisons[index].status == "proven")[:RULES])
    lines += block_lines([rules_table(comparisons[index] for index in indices)])
    if len(indices) < len(comparisons):
        lines += [
            "",
            f"{counted(len(comparisons) - len(indices), 'more rule is', 'more rules are')} in the HTML or JSON report.",
        ]
    return "\n".join([*lines, "", "</details>", ""])


def _in_html(text: str) -> str:
    """Escape text for HTML alone: inside HTML tags, Markdown escapes would be shown."""
    return escape(visible_line(text))


def _command(kind: str, finding: Finding, path: str) -> str:
    line = {} if finding.line is None else {"line": str(finding.line)}
    properties = {"file": path, **line, "title": finding.title}
    parameters = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    return f"::{kind} {parameters}::{_data(finding.message)}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(text).replace(":", "%3A").replace(",", "%2C")
