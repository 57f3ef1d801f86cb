"""The report as Markdown, with all stored text escaped."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from qualgate.escaping import visible, visible_line
from qualgate.formatting import (
    difference_and_bounds,
    drift_texts,
    flips_text,
    stop_texts,
    value_text,
    version_text,
)
from qualgate.records import ArmService, Comparison, FourArm, Speculated
from qualgate.report import readings, speculation, trajectories
from qualgate.report.arms import (
    SERVICE_HEADS,
    STEPS,
    choice_line,
    interaction_text,
    service_notes,
    service_row,
    size_cells,
    step_rows,
    weights_and_cache_heads,
    weights_and_cache_rows,
)
from qualgate.report.summary import Report
from qualgate.store.queries import Flip, Readings, Trajectories

# Characters with a meaning in Markdown, and bare addresses, which many readers turn into links.
_MARKS = re.compile(r"[\\`*_{}\[\]#!|~$^]|^[-+=]|:(?=//)|(?<=www)\.", re.IGNORECASE)
TEXT_LIMIT = 600  # characters of an answer quoted
COMPARISONS_HEAD = (
    "| rule | slice | tier | n | baseline | variant | difference [bounds] | lost / gained | result |",
    "|---|---|---|---|---|---|---|---|---|",
)


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
        lines += ["", *four_arm_lines(report.four_arm)]
    sets = ", ".join(f"{escaped(s.name)} {escaped(version_text(s.version))} ({s.size})" for s in report.run.evalsets)
    lines += ["", f"Evalsets: {sets}.", "", "## Arms", ""]
    lines += _arms(report)
    for verdict in report.verdicts:
        lines += ["", f"## {escaped(verdict.variant)}: {escaped(verdict.word)}", ""]
        lines += [f"- {escaped(reason)}" for reason in verdict.reasons]
        if verdict.comparisons:
            lines += ["", *COMPARISONS_HEAD, *map(comparison_row, verdict.comparisons)]
        if verdict.drift:
            lines += ["", f"Drift (ranks and warns): {escaped('; '.join(drift_texts(verdict.drift)))}."]
        if verdict.stop_reasons:
            lines += ["", f"Answers ended by: {escaped('; '.join(stop_texts(verdict.stop_reasons)))}."]
        if verdict.four_arm is None and verdict.services:
            lines += _services(verdict.services)
        if (apart := verdict.weights_and_cache) is not None:
            lines += ["", "### Weights and cache, apart and together"]
            lines += _table(weights_and_cache_heads(apart), weights_and_cache_rows(apart))
        if verdict.speculated is not None:
            lines += speculation_section(verdict.speculated)
        lines += _trajectories(report.trajectories.get(verdict.variant, ()))
        lines += _readings(report.readings.get(verdict.variant, ()))
        flips = report.flips.get(verdict.variant, ())
        if flips:
            lines += ["", "Answers that were right and are wrong now, the first ones:"]
        if any(flip.noisy is not None for flip in flips):
            lines[-1] += " those that the A/A arm changes too are last."
        for flip in flips:
            lines += ["", *flip_lines(flip)]
    return "\n".join(lines).rstrip("\n") + "\n"


def _arms(report: Report) -> list[str]:
    """Return a table of the arms: weights, sizes, kernels, answers and errors; then notes on them."""
    lines = [
        "| arm | weights | on disk | in memory | bits a weight | kernel | done | errors |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for arm in report.run.arms:
        progress_cells = (f"{arm.done} of {arm.expected}", str(arm.errors))
        lines.append(row(arm.name, arm.weights, *size_cells(arm.sizes), ", ".join(arm.kernels) or "–", *progress_cells))
    if report.of_arms:
        lines += ["", *(f"- {escaped(line)}" for line in report.of_arms)]
    return lines


def speculation_section(speculated: Speculated) -> list[str]:
    """Render the drafts' acceptance by level, position and task, and how to serve the arm."""
    advice = speculation.advice(speculated)
    lines = ["", f"### Speculation: {escaped(speculation.headline(speculated))}", ""]
    lines += [f"- **{escaped(line)}**" for line in speculated.alerts]
    lines += [f"- {escaped(term)}: {escaped(value)}" for term, value in speculation.terms(speculated)]
    lines += _table(speculation.LEVEL_HEADS, speculation.level_rows(speculated))
    for level in speculated.levels:
        if len(speculated.levels) > 1:
            lines += ["", f"Level {level.level}, {escaped(level.proposer)}:"]
        lines += _table(speculation.POSITION_HEADS, speculation.position_rows(level))
        lines += _table(speculation.TASK_HEADS, speculation.task_rows(level))
    lines += ["", f"Advice: {escaped(advice.sentence)}"]
    if advice.made_by:
        lines += ["", *_pasted("the draft's folder", advice.made_by)]
    for peer in advice.peers:
        peer_line = speculation.peer_text(peer)
        lines += ["", *(_pasted(peer_line, peer.flags) if peer.flags else [escaped(peer_line)])]
    return lines


def _readings(sets: Sequence[Readings]) -> list[str]:
    """Render a table per evalset: right tool calls by each reading."""
    lines = []
    for results in sets:
        lines += ["", f"### {escaped(readings.headline(results))}", *_table(readings.HEADS, readings.rows(results))]
    return lines


def _trajectories(sets: Sequence[Trajectories]) -> list[str]:
    """Render the rates turn by turn, then the lost trajectories with the first divergent turn in brackets."""
    lines = []
    for results in sets:
        lines += ["", f"### Trajectories of {escaped(trajectories.headline(results))}"]
        lines += _table(trajectories.HEADS, trajectories.turn_rows(results))
        lines += ["", escaped(trajectories.lost_head(results)), ""] if results.lost else []
        lines += [f"- {escaped(trajectories.lost_line(trajectory))}" for trajectory in results.first_lost]
    return lines


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return ["", row(*heads), f"|{'---|' * len(heads)}", *(row(*cells) for cells in rows)] if rows else []


def _pasted(label: str, text: str) -> list[str]:
    """Render text to be pasted as it is, in a block of its own."""
    *block, _ = _quoted(label, visible_line(text))
    return [f"{escaped(label)}:", *block[1:]]


def four_arm_lines(answer: FourArm) -> list[str]:
    """Render the choice, each arm's steps, interactions, costs, what to try first, and the order of blocks."""
    lines = [f"## Which arm to serve: {escaped(answer.choice or 'not known yet')}", "", escaped(answer.why)]
    if rows := step_rows(answer):
        lines += ["", row("arm", *STEPS.values()), f"|{'---|' * (1 + len(STEPS))}"]
    for arm, steps in rows:
        cells = (steps.get(name) for name in STEPS)
        lines.append(row(arm, *(f"{step.status}: {step.reason}" if step else "–" for step in cells)))
    if answer.interactions:
        lines += ["", "Interaction of quantization and speculation:", ""]
        lines += [f"- {escaped(interaction_text(interaction))}" for interaction in answer.interactions]
    lines += _services(answer.services)
    lines += ["", f"Try first: **{escaped(answer.first)}** ({escaped(answer.first_why)})"]
    if answer.blocks:
        lines += ["", f"Blocks (seed {answer.seed}): {escaped(' '.join(answer.blocks))}"]
    return lines


def _services(services: Sequence[ArmService]) -> list[str]:
    if not services:
        return []
    rule = f"|{'---|' * len(SERVICE_HEADS)}"
    rows = [row(*service_row(service)) for service in services]
    return ["", row(*SERVICE_HEADS), rule, *rows, "", *(f"- {escaped(line)}" for line in service_notes(services))]


def comparison_row(c: Comparison) -> str:
    """Render a row under COMPARISONS_HEAD."""
    values = (
        value_text(c.metric, c.baseline),
        value_text(c.metric, c.variant),
        difference_and_bounds(c),
        flips_text(c),
    )
    return row(c.rule, c.slice, c.tier, str(c.n), *values, c.status)


def escaped(text: str) -> str:
    """Escape stored text, which a model may have written, as one line of Markdown."""
    return html.escape(_MARKS.sub(r"\\\g<0>", visible_line(text)), quote=False)


def row(*cells: str) -> str:
    """Render a row of a table, its cells escaped."""
    return f"| {' | '.join(map(escaped, cells))} |"


def flip_lines(flip: Flip) -> list[str]:
    """Render the case, the reason why it is wrong, and both answers."""
    case = escaped(flip.name)
    notes = " (changes in the A/A arm too)" if flip.noisy else ""
    head = f"**{case}** ({escaped(flip.metric)}): {escaped(flip.reason)}{notes}"
    return [head, "", *_quoted("baseline", flip.baseline), *_quoted("variant", flip.variant)]


def _quoted(label: str, text: str) -> list[str]:
    """Render a code block with a fence longer than any run of backticks in the text, so the text cannot end it."""
    shown = visible(text[:TEXT_LIMIT]) + (" … (cut)" if len(text) > TEXT_LIMIT else "")
    fence = "`" * (max((len(run) for run in re.findall("`+", shown)), default=0) + 3)
    return [f"{label}:", f"{fence}text", shown, fence, ""]
