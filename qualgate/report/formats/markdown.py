"""The report as Markdown, with all stored text escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator
from itertools import chain

from qualgate.report.blocks import Block, Cell, Figure, Lines, Note, Paste, Section, Table, Terms
from qualgate.report.decisions import decision_sections
from qualgate.report.four_arms import choice_line, choice_section
from qualgate.report.sections import BOUNDS, setting_sections, variant_sections
from qualgate.report.summary import Report
from qualgate.store.queries import Flip
from qualgate.text.escaping import visible, visible_line

# Characters with a meaning in Markdown, and bare addresses, which many readers turn into links.
_MARKS = re.compile(r"[\\`*_{}\[\]#!|~$^]|^[-+=]|:(?=//)|(?<=www)\.", re.IGNORECASE)
TEXT_LIMIT = 600  # characters of an answer quoted


def report_as_markdown(report: Report) -> str:
    """Render the whole report. It depends on stored evidence alone, so the same evidence gives the same bytes."""
    lines = [f"# qualgate report: run {escaped(report.run.run_id)}", ""]
    for remark in report.remarks:
        lines += [f"**{escaped(remark)}**", ""]
    if report.four_arm is not None:
        lines += [f"**{escaped(choice_line(report.four_arm))}**", ""]
    lines += ["| variant | verdict | reason |", "|---|---|---|"]
    lines += [row(v.variant, v.word, v.reasons[0]) for v in report.verdicts]
    if report.four_arm is not None:
        lines += section_lines(choice_section(report.four_arm), 2)
    for stored in report.run.verdicts:
        verdict = stored.verdict
        lines += ["", f"## {escaped(verdict.variant)}: {escaped(verdict.word)}", ""]
        lines += [f"- {escaped(reason)}" for reason in verdict.reasons]
        sections = (*decision_sections(stored), *variant_sections(report, stored))
        lines += chain.from_iterable(section_lines(section, 3) for section in sections)
        flips = report.flips.get(verdict.variant, ())
        if flips:
            lines += ["", "Answers that were right and are wrong now, the first ones:"]
        if any(flip.noisy is not None for flip in flips):
            lines[-1] += " those that the A/A arm changes too are last."
        for flip in flips:
            lines += ["", *flip_lines(flip)]
    lines += chain.from_iterable(section_lines(section, 2) for section in setting_sections(report))
    return "\n".join(lines).rstrip("\n") + "\n"


def section_lines(section: Section, level: int) -> list[str]:
    """Render a section: an empty line, its title as a heading of this level, its blocks; [] if it has no text."""
    lines = block_lines(section.blocks)
    return ["", f"{'#' * level} {escaped(section.title)}", *lines] if section.title and lines else lines


def block_lines(blocks: Iterable[Block]) -> list[str]:
    """Render blocks, each behind an empty line; a picture is told by its lines."""
    return [line for block in blocks if (lines := [*_block(block)]) for line in ("", *lines)]


def _block(block: Block) -> Iterator[str]:
    match block:
        case Table(heads=heads, rows=rows) if rows:
            yield row(*heads).replace(escaped(BOUNDS), BOUNDS)  # this head is no link, and is read as it is
            yield f"|{'---|' * len(heads)}"
            yield from (row(*map(_cell, cells)) for cells in rows)
        case Terms(rows=rows, brief=True):
            yield escaped("; ".join(f"{term} {value}" for term, value in rows)) + "."
        case Terms(rows=rows):
            yield from (f"- {escaped(term)}: {escaped(value)}" for term, value in rows)
        case Figure(caption=caption, lines=lines) if lines:
            yield from (f"{escaped(caption)}:", "", *(f"- {escaped(line)}" for line in lines))
        case Note(kind="alert", text=text):
            yield f"**{escaped(text)}**"
        case Note(text=text, strong=strong, after=after):
            parts = (escaped(text), strong and f"**{escaped(strong)}**", escaped(after))
            yield " ".join(filter(None, parts))
        case Lines(lines=lines):
            yield from (f"- {escaped(line)}" for line in lines)
        case Paste(label=label, lines=lines):
            yield f"{escaped(label)}:"
            yield from _quoted(label, "\n".join(map(visible_line, lines)))[1:-1]


def _cell(cell: str | Cell) -> str:
    if isinstance(cell, str):
        return cell
    return f"{cell.text}: {cell.note}" if cell.note else cell.text


def escaped(text: str) -> str:
    """Escape stored text, which a model may have written, as one line of Markdown."""
    return html.escape(_MARKS.sub(r"\\\g<0>", visible_line(text)), quote=False)


def row(*cells: str) -> str:
    """Render a row of a table, its cells escaped."""
    return f"| {' | '.join(map(escaped, cells))} |"


def flip_lines(flip: Flip) -> list[str]:
    """Render the case, the reason why it is wrong, and both answers unless they are not known (of score files)."""
    case = escaped(flip.name)
    notes = " (changes in the A/A arm too)" if flip.noisy else ""
    head = f"**{case}** ({escaped(flip.metric)}): {escaped(flip.reason)}{notes}"
    if not (flip.prompt or flip.baseline or flip.variant):
        return [head, ""]
    return [head, "", *_quoted("baseline", flip.baseline), *_quoted("variant", flip.variant)]


def _quoted(label: str, text: str) -> list[str]:
    """Render a code block with a fence longer than any run of backticks in the text, so the text cannot end it."""
    shown = visible(text[:TEXT_LIMIT]) + (" … (cut)" if len(text) > TEXT_LIMIT else "")
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 3)
    return [f"{label}:", f"{fence}text", shown, fence, ""]
