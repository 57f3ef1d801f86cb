"""A report as Markdown: any stored text in it is only text, whatever a model wrote."""

from __future__ import annotations

import html
import re
from typing import TYPE_CHECKING

from qualgate.numbers import difference_and_bounds, drift_texts, flips_text, size_text, value_text
from qualgate.records import Comparison
from qualgate.visible import visible, visible_line

if TYPE_CHECKING:
    from qualgate.report.summary import Report
    from qualgate.store.queries import Flip

# What can begin something in Markdown, a bare address among it, which many readers make a link.
_MARKS = re.compile(r"[\\`*_{}\[\]#!|~$^]|^[-+=]|:(?=//)|(?<=www)\.", re.IGNORECASE)
TEXT_LIMIT = 600  # characters of an answer quoted
COMPARISONS_HEAD = (
    "| rule | slice | tier | n | baseline | variant | difference [bounds] | lost / gained | result |",
    "|---|---|---|---|---|---|---|---|---|",
)


def report_as_markdown(report: Report) -> str:
    """The whole report. Depends on stored evidence alone, so the same evidence gives the same bytes."""
    lines = [f"# qualgate report: run {escaped(report.run.run_id)}", ""]
    lines += ["| variant | verdict | reason |", "|---|---|---|"]
    lines += [row(v.variant, v.word, v.reasons[0]) for v in report.verdicts]
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
        lines.append(row(arm.name, arm.weights, *sizes, ", ".join(arm.kernels) or "–", *done))
    for verdict in report.verdicts:
        lines += ["", f"## {escaped(verdict.variant)}: {escaped(verdict.word)}", ""]
        lines += [f"- {escaped(reason)}" for reason in verdict.reasons]
        lines += ["", *COMPARISONS_HEAD]
        lines += [comparison_row(comparison) for comparison in verdict.comparisons]
        if verdict.drift:
            lines += ["", f"Drift (ranks and warns): {escaped('; '.join(drift_texts(verdict.drift)))}."]
        flips = report.flips.get(verdict.variant, ())
        if flips:
            lines += ["", "Answers that were right and are wrong now, the first ones:"]
        for flip in flips:
            lines += ["", *flip_lines(flip)]
    return "\n".join(lines).rstrip("\n") + "\n"


def comparison_row(c: Comparison) -> str:
    values = (
        value_text(c.metric, c.baseline),
        value_text(c.metric, c.variant),
        difference_and_bounds(c),
        flips_text(c),
    )
    return row(c.rule, c.slice, c.tier, str(c.n), *values, c.status)


def escaped(text: str) -> str:
    """Any stored text as one line of Markdown that is only text: a model may have written it."""
    return html.escape(_MARKS.sub(r"\\\g<0>", visible_line(text)), quote=False)


def row(*cells: str) -> str:
    """A row of a table."""
    return f"| {' | '.join(map(escaped, cells))} |"


def flip_lines(flip: Flip) -> list[str]:
    """Which case, why it is wrong, and both answers."""
    case = escaped(f"{flip.evalset}/{flip.case_id}")
    head = f"**{case}** ({escaped(flip.metric)}): {escaped(flip.reason)}"
    return [head, "", *_quoted("baseline", flip.baseline), *_quoted("variant", flip.variant)]


def _quoted(label: str, text: str) -> list[str]:
    """A code block whose fence is longer than any run of backticks in it, so that nothing in it ends it."""
    shown = visible(text[:TEXT_LIMIT]) + (" … (cut)" if len(text) > TEXT_LIMIT else "")
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 3)
    return [f"{label}:", f"{fence}text", shown, fence, ""]
