"""The report as one HTML page without scripts or external resources.

Model text is hostile: it is escaped and its invisible characters are shown. As a second defence the page's security
policy forbids scripts, pictures, frames, forms and every address.
"""

from __future__ import annotations

from html import escape
from pathlib import Path

from qualgate.records import FourArm
from qualgate.report import diff, plots
from qualgate.report.blocks import Lines, Section
from qualgate.report.decisions import decision_sections
from qualgate.report.four_arms import choice_details
from qualgate.report.html_blocks import block_html, chip, section_html
from qualgate.report.html_blocks import text_html as _text
from qualgate.report.page import page
from qualgate.report.sections import setting_sections, variant_sections
from qualgate.report.summary import Report
from qualgate.store.labels import Label
from qualgate.store.queries import ArmLine, Flip, StoredVerdict
from qualgate.text.escaping import visible

TEXT_LIMIT = 2000  # characters of an answer quoted
PIECES = 1000  # compared of two answers: fewer than on a page of their own, since a report quotes many
RANKED = "What changes when the baseline answers again without any change of weights (A/A) says little and is last."


def report_as_html(report: Report) -> str:
    """Render the whole report. It depends on stored evidence alone, so the same evidence gives the same bytes."""
    style = plots.style() + Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    run, four_arm = report.run, report.four_arm
    details = Section("How far each arm came", choice_details(four_arm)) if four_arm else None
    setting, *more = setting_sections(report)
    parts = [
        "<main>",
        f"<header><h1>qualgate report</h1><p class=quiet>run {_text(run.run_id)} · {_text(run.status)}"
        f" · exit code {int(report.exit)}</p></header>",
        *([_WARN_ONLY.format(code=int(report.exit))] if report.warn_only else []),
        *(f'<p class="loud">{_text(remark)}</p>' for remark in report.remarks),
        *([_choice(four_arm)] if four_arm else []),
        _overview(report),
        *([f'<section id="arms">{section_html(details, 2)}</section>'] if details else []),
        *(_variant(stored, report, index) for index, stored in enumerate(run.verdicts)),
        f"<section>{section_html(setting, 2)}{''.join(map(section_html, more))}</section>",
        _FOOTER,
        "</main>",
    ]
    return page(f"qualgate report {_text(run.run_id)}", style, "\n".join(parts), schemes="light dark")


_WARN_ONLY = '<p class="loud">Warn only: the true exit code is {code}, and the command was told to exit with 0.</p>'
_FOOTER = """<footer><h2>How to read this</h2>
<p>A rule is <b>proven</b> when its bound excludes a breach of the limit, <b>broken</b> when a breach is proven, else
<b>undecided</b>. The bounds of quality rules are those of the difference, of drift rules those of the variant's value,
of latency rules those of the ratio; each is one-sided at the policy's alpha. A variant is approved when every critical
rule is proven. Drift ranks and warns; it decides by a rule alone.</p></footer>"""


def _overview(report: Report) -> str:
    """Render a card for each variant with its verdict and first reason, or what failed while nothing is decided yet."""
    if not report.verdicts:
        return '<p class="loud">This run is not complete: nothing is decided yet.</p>'
    arms = {arm.name: arm for arm in report.run.arms}
    cards = []
    for index, verdict in enumerate(report.verdicts):
        arm = arms.get(verdict.variant)
        weights = f"<p class=quiet>{_text(arm.weights)}{_bits(arm)}</p>" if arm else ""
        chosen = report.four_arm is not None and report.four_arm.choice == verdict.variant
        why = f"<p><b>Chosen</b>: {_text(report.four_arm.why)}</p>" if chosen and report.four_arm else ""
        cards.append(
            f'<a class="card {_text(verdict.word)}" href="#v{index}"><p>{chip(verdict.word)}</p>'
            f"<h3>{_text(verdict.variant)}</h3>{why}{weights}<p>{_text(verdict.reasons[0])}</p></a>"
        )
    return f'<div class="cards">{"".join(cards)}</div>'


def _choice(answer: FourArm) -> str:
    """Render which arm to serve, in the colour of the exit code, and why."""
    word = {0: "approve", 11: "review"}.get(answer.exit, "block" if answer.choice else "undecided")
    serve = f"serve {answer.choice}" if answer.choice else "not known yet"
    return (
        f'<section id="choice"><h2>Which arm to serve <span class="chip name {word}">{_text(serve)}</span></h2>'
        f"<p>{_text(answer.why)}</p></section>"
    )


def _variant(stored: StoredVerdict, report: Report, index: int) -> str:
    """Render a variant's section with the anchor `v{index}`: verdict, reasons, people's decisions, then every
    measurement of it."""
    verdict, name = stored.verdict, stored.verdict.variant
    head = f'<section id="v{index}"><h2>{_text(name)} {chip(verdict.word)}</h2>{block_html(Lines(verdict.reasons))}'
    head += "".join(map(section_html, decision_sections(stored)))
    parts, quoted = [*map(section_html, variant_sections(report, stored))], report.flips.get(name, ())
    if quoted and verdict.word != "invalid":  # damaged evidence is not shown
        unquoted = report.lost.get(name, 0) - len(quoted)
        first = f": the first {len(quoted)}, {unquoted:,} more are in the dashboard" if unquoted > 0 else ""
        parts.append(f"<h3>Right before, wrong now{first}</h3>")
        if any(flip.noisy is not None for flip in quoted):
            parts.append(f"<p class=quiet>{RANKED}</p>")
        labels = report.labels.get(name, {})
        parts += (_flip(flip, labels.get(flip.case)) for flip in quoted)
    figures = "\n".join(parts)
    if verdict.word == "approve":  # folded: few readers need the figures of an approved variant
        figures = f"<details><summary>Its figures</summary>{figures}</details>"
    return f"{head}{figures}</section>"


def _flip(flip: Flip, label: Label | None) -> str:
    """Render a flip: its reason, the prompt, the reference and both answers with differences marked, as far as they are
    known: score files may hold no texts. label: a person's on the variant's answer."""
    before, after = _answers(flip.baseline, flip.variant)
    head = f"<b>{_text(flip.name)}</b> ({_text(flip.metric)}){': ' if flip.reason else ''}{_text(flip.reason)}"
    question = _pair(("prompt", _quoted(flip.prompt)), ("reference", _quoted(flip.reference)))
    question = question if flip.prompt or flip.reference else ""
    answers = _pair(("baseline", before), ("variant", after)) if question or flip.baseline or flip.variant else ""
    notes = "" if flip.first_divergence is None else f" · first other token: {flip.first_divergence}"
    notes += f" · parts in the {where}" if (where := diff.parts_in(flip)) else ""
    notes += " · changes in the A/A arm too" if flip.noisy else ""
    labelled = f"<p>{_text(label.text + label.ending)}</p>" if label is not None else ""
    return f'<article class="flip"><p>{head}<span class=quiet>{notes}</span></p>{labelled}{question}{answers}</article>'


def _pair(*sides: tuple[str, str]) -> str:
    """Render two texts side by side. sides: name and HTML content of each."""
    cells = (f"<div><p class=quiet>{name}</p><pre>{content}</pre></div>" for name, content in sides)
    return f'<div class="pair">{"".join(cells)}</div>'


def _quoted(text: str) -> str:
    return escape(visible(text[:TEXT_LIMIT])) + _cut(text)


def _answers(before: str, after: str) -> tuple[str, str]:
    """Render the beginnings of both answers with their differences marked."""
    baseline, variant = diff.marked(before[:TEXT_LIMIT], after[:TEXT_LIMIT], most=PIECES)
    return baseline + _cut(before), variant + _cut(after)


def _cut(text: str) -> str:
    return " … (cut)" if len(text) > TEXT_LIMIT else ""


def _bits(arm: ArmLine) -> str:
    return f", {arm.sizes.effective_bits:.2f} bits a weight in memory" if arm.sizes else ""
