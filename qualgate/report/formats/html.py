"""The report as one HTML page without scripts or external resources.

Model text is hostile: it is escaped and its invisible characters are shown. As a second defence the page's security
policy forbids scripts, pictures, frames, forms and every address.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from qualgate.escaping import visible, visible_line
from qualgate.formatting import (
    difference_and_bounds,
    drift_terms,
    flips_text,
    stop_texts,
    value_text,
    version_text,
)
from qualgate.records import ArmService, Comparison, FourArm, Speculated, WeightsAndCache
from qualgate.report import diff, plots, readings, served, speculation, trajectories
from qualgate.report.arms import (
    SERVICE_HEADS,
    STEPS,
    service_notes,
    service_row,
    size_cells,
    step_rows,
    weights_and_cache_heads,
    weights_and_cache_rows,
)
from qualgate.report.page import page
from qualgate.report.summary import Report
from qualgate.store.queries import ArmLine, Flip, Readings, StoredVerdict, Trajectories, Trajectory

TEXT_LIMIT = 2000  # characters of an answer quoted
DIFFERS = "≠ is not the same of all"
PIECES = 1000  # compared of two answers: fewer than on a page of their own, since a report quotes many


def report_as_html(report: Report) -> str:
    """Render the whole report. It depends on stored evidence alone, so the same evidence gives the same bytes."""
    style = plots.style() + Path(__file__).with_name("report.css").read_text(encoding="utf-8")
    run = report.run
    parts = [
        "<main>",
        f"<header><h1>qualgate report</h1><p class=quiet>run {_text(run.run_id)} · {_text(run.status)}"
        f" · exit code {int(report.exit)}</p></header>",
        *([_WARN_ONLY.format(code=int(report.exit))] if report.warn_only else []),
        *(f'<p class="loud">{_text(remark)}</p>' for remark in report.remarks),
        *([_choice(report.four_arm)] if report.four_arm else []),
        _overview(report),
        *([_four_arm(report.four_arm)] if report.four_arm else []),
        *(_variant(stored, report, index) for index, stored in enumerate(run.verdicts)),
        _setting(report),
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
        return '<p class="loud">This run is not complete: nothing is decided yet.</p>' + _list(report.run.failures)
    arms = {arm.name: arm for arm in report.run.arms}
    cards = []
    for index, verdict in enumerate(report.verdicts):
        arm = arms.get(verdict.variant)
        weights = f"<p class=quiet>{_text(arm.weights)}{_bits(arm)}</p>" if arm else ""
        chosen = report.four_arm is not None and report.four_arm.choice == verdict.variant
        why = f"<p><b>Chosen</b>: {_text(report.four_arm.why)}</p>" if chosen and report.four_arm else ""
        cards.append(
            f'<a class="card {_text(verdict.word)}" href="#v{index}"><p>{_chip(verdict.word)}</p>'
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


def _four_arm(answer: FourArm) -> str:
    """Render the steps that each arm passed, the interactions, what serving cost, and the arm to try first."""
    parts = ['<section id="arms"><h2>How far each arm came</h2>']
    if rows := step_rows(answer):
        heads = ("arm", *STEPS.values())
        cells = (
            (_text(arm), *(_step(steps[name].status, steps[name].reason) if name in steps else "–" for name in STEPS))
            for arm, steps in rows
        )
        parts.append(_table(heads, cells, numbers=()))
    if picture := plots.interactions(answer.interactions):
        caption = "Quantization and speculation together beyond what each does alone, in points (of costs: log ratio)"
        parts.append(f"<h3>Interaction</h3><figure><figcaption>{caption}</figcaption>{picture}</figure>")
    parts.append(_services(answer.services))
    parts.append(f"<h3>What to try first</h3><p><b>{_text(answer.first)}</b>: {_text(answer.first_why)}</p>")
    if answer.blocks:
        parts.append(f"<p class=quiet>Blocks (seed {answer.seed}): {_text(' '.join(answer.blocks))}</p>")
    return "\n".join([*parts, "</section>"])


def _step(status: str, reason: str) -> str:
    sign = f'<span class="sign {_text(status)}">{plots.SIGNS.get(status, "")}</span>'
    return f"{sign}&nbsp;{_text(status)}<br><span class=quiet>{_text(reason)}</span>"


def _services(services: Sequence[ArmService]) -> str:
    if not services:
        return ""
    rows = ([_text(cell) for cell in service_row(service)] for service in services)
    notes = f"<p class=quiet>{'<br>'.join(map(_text, service_notes(services)))}</p>"
    return f"<h3>What serving took and gave</h3>{_table(SERVICE_HEADS, rows, numbers=(1, 3))}{notes}"


def _setting(report: Report) -> str:
    """Render the evalsets, the policy, the arms with sizes and answer counts, served settings, and failures."""
    run = report.run
    sets = ", ".join(f"{_text(s.name)} {_text(version_text(s.version))} ({s.size})" for s in run.evalsets)
    policy = report.policy
    rows = []
    for arm in run.arms:
        answered = f"{arm.done:,} of {arm.expected:,}"
        kernel = ", ".join(arm.kernels) or "–"
        rows.append((arm.name, arm.weights, *size_cells(arm.sizes), kernel, answered, f"{arm.errors:,}"))
    heads = ("arm", "weights", "on disk", "in memory", "bits a weight", "kernel", "answers", "errors")
    failures = f"<h3>What could not be run</h3>{_list(run.failures)}" if run.failures and report.verdicts else ""
    return (
        f"<section><h2>What was judged</h2><p>Evalsets: {sets}.<br>Policy: {_counted(len(policy.rules), 'rule')}, "
        f"alpha {policy.alpha:g}, one-sided; review {_text(policy.review)}"
        f"{'; generation stops early' if policy.stop else ''}.</p>"
        f"{_table(heads, ([_text(cell) for cell in row] for row in rows), numbers=(2, 3, 4, 6, 7))}"
        f"{_served(run.arms)}{_list(report.of_arms)}{failures}</section>"
    )


def _served(arms: Sequence[ArmLine]) -> str:
    """Render engine, version and flags of the served arms, with differences marked."""
    names, settings = served.side_by_side(arms)
    if not settings:
        return ""
    rows = []
    for setting in settings:
        cells = [f"<ins>{_text(cell)}</ins>" if setting.differs else _text(cell) for cell in setting.cells]
        rows.append((f"{'≠ ' if setting.differs else ''}{_text(setting.what)}", *cells))
    return f"<h3>Served side by side</h3>{_table((DIFFERS, *names), rows, numbers=())}"


def _variant(stored: StoredVerdict, report: Report, index: int) -> str:
    """Render a variant's section with the anchor `v{index}`: verdict, reasons, rules, then every other measurement of
    it."""
    verdict, name = stored.verdict, stored.verdict.variant
    parts, end = [f'<section id="v{index}"><h2>{_text(name)} {_chip(verdict.word)}</h2>', _list(verdict.reasons)], ""
    if verdict.word == "approve":  # folded: few readers need the figures of an approved variant
        parts.append("<details><summary>Its figures</summary>")
        end = "</details>"
    end = f"{end}</section>"
    if verdict.comparisons:
        parts.append("<h3>Rules</h3>")
        parts += [
            f"<figure><figcaption>{_text(heading)}</figcaption>{picture.html}</figure>"
            for heading, picture in plots.margins(verdict.comparisons, stored.policy)
        ]
        heads = ("rule", "slice", "n", "baseline", "variant", "difference [bounds]", "lost / gained", "result")
        parts.append(_table(heads, map(_rule, verdict.comparisons), numbers=(2, 3, 4, 5, 6)))
    if verdict.four_arm is None:  # else shown beside the choice
        parts.append(_services(verdict.services))
    if verdict.word == "invalid":  # damaged evidence is not drawn
        return "\n".join([*parts, end])
    if verdict.weights_and_cache is not None:
        parts.append(_weights_and_cache(verdict.weights_and_cache))
    if verdict.speculated is not None:
        parts.append(_speculation(verdict.speculated))
    parts += map(_trajectories, report.trajectories.get(name, ()))
    parts += map(_readings, report.readings.get(name, ()))
    if picture := plots.flips(report.flip_counts.get(name, ())):
        parts.append(f"<h3>Answers that changed</h3><figure>{picture.html}</figure>")
    points = report.drift.get(name, ())
    if verdict.drift or points:
        parts.append("<h3>Drift</h3>")
    if picture := plots.drift(points):
        parts.append(f"<figure><figcaption>{plots.DRIFT_CAPTION}</figcaption>{picture.html}</figure>")
    if verdict.drift:
        terms = drift_terms(verdict.drift)
        figures = "".join(f"<div><dt>{_text(term)}</dt><dd>{_text(value)}</dd></div>" for term, value in terms)
        parts.append(f"<dl>{figures}</dl>")
    if verdict.stop_reasons:
        parts.append(f"<p class=quiet>Answers ended by: {_text('; '.join(stop_texts(verdict.stop_reasons)))}</p>")
    if quoted := report.flips.get(name, ()):
        unquoted = report.lost.get(name, 0) - len(quoted)
        first = f": the first {len(quoted)}, {unquoted:,} more are in the dashboard" if unquoted > 0 else ""
        parts.append(f"<h3>Right before, wrong now{first}</h3>")
        if any(flip.noisy is not None for flip in quoted):
            parts.append(f"<p class=quiet>{RANKED}</p>")
        parts += map(_flip, quoted)
    return "\n".join([*parts, end])


def _weights_and_cache(comparison: WeightsAndCache) -> str:
    """Render the effect of each of two changes alone, of both, and their interaction."""
    rows = ([_text(cell) for cell in row] for row in weights_and_cache_rows(comparison))
    table = _table([_text(head) for head in weights_and_cache_heads(comparison)], rows, numbers=range(2, 6))
    picture = plots.interactions(comparison.interactions)
    caption = "Both together beyond the sum of what each does alone, in points"
    figure = f"<figure><figcaption>{caption}</figcaption>{picture}</figure>" if picture else ""
    return f"<h3>Weights and cache, apart and together</h3>{table}{figure}"


def _speculation(speculated: Speculated) -> str:
    """Render the drafts' acceptance by level, position and task, and how to serve the arm."""
    advice = speculation.advice(speculated)
    parts = [f"<h3>Speculation</h3><p><b>{_text(speculation.headline(speculated))}</b></p>"]
    parts += [f'<p class="loud">{_text(line)}</p>' for line in speculated.alerts]
    terms = "".join(
        f"<div><dt>{_text(term)}</dt><dd>{_text(value)}</dd></div>" for term, value in speculation.terms(speculated)
    )
    parts.append(f"<dl>{terms}</dl>")
    rows = ([_text(cell) for cell in row] for row in speculation.level_rows(speculated))
    parts.append(_table(speculation.LEVEL_HEADS, rows, numbers=range(2, 10)))
    for level in speculated.levels:
        if picture := plots.acceptance(level.positions):
            level_name = f"Level {level.level}, {level.proposer}. " if len(speculated.levels) > 1 else ""
            caption = _text(f"{level_name}{plots.ACCEPTANCE_CAPTION}")
            parts.append(f"<figure><figcaption>{caption}</figcaption>{picture.html}</figure>")
        places = ([_text(cell) for cell in row] for row in speculation.position_rows(level))
        parts.append(_table(speculation.POSITION_HEADS, places, numbers=(1, 2)))
        tasks = ([_text(cell) for cell in row] for row in speculation.task_rows(level))
        parts.append(_table(speculation.TASK_HEADS, tasks, numbers=(1, 2)))
    parts.append(f"<h3>How to serve it</h3><p>{_text(advice.sentence)}</p>")
    pasted = [("the draft's folder", advice.made_by)] if advice.made_by else []
    pasted += [(speculation.peer_text(peer), peer.flags) for peer in advice.peers]
    for what, flags in pasted:
        parts.append(f"<p class=quiet>{_text(what)}</p>" + (f"<pre>{_text(flags)}</pre>" if flags else ""))
    return "\n".join(parts)


def _trajectories(results: Trajectories) -> str:
    """Render the rates turn by turn, then the lost trajectories with their first divergent turn marked."""
    rows = ([_text(cell) for cell in row] for row in trajectories.turn_rows(results))
    table = _table(trajectories.HEADS, rows, numbers=range(6))
    lost = f"<p>{_text(trajectories.lost_head(results))}</p>" if results.lost else ""
    return f"<h3>Trajectories</h3><p>{_text(trajectories.headline(results))}</p>{table}{lost}" + (
        f"<ul>{''.join(map(_lost, results.first_lost))}</ul>" if results.lost else ""
    )


def _readings(results: Readings) -> str:
    rows = ([_text(cell) for cell in row] for row in readings.rows(results))
    return f"<h3>{_text(readings.headline(results))}</h3>" + _table(readings.HEADS, rows, numbers=range(1, 6))


def _lost(trajectory: Trajectory) -> str:
    name, turn = trajectory.name + (f"#{trajectory.repeat}" if trajectory.repeat else ""), trajectory.diverged
    signs = [trajectories.SIGNS[value] for value in trajectory.variant]
    turns = [f"<ins>{sign}</ins>" if index == turn else sign for index, sign in enumerate(signs)]
    why = "" if turn is None else f"first diverges at turn {trajectory.turns[turn]}: {trajectory.reasons[turn]}"
    return f"<li><b>{_text(name)}</b> {' '.join(turns)} <span class=quiet>{_text(why)}</span></li>"


RANKED = "What changes when the baseline answers again without any change of weights (A/A) says little and is last."


def _rule(comparison: Comparison) -> tuple[str, ...]:
    """Return the table row of one rule on one slice."""
    sign = f'<span class="sign {_text(comparison.status)}">{plots.SIGNS.get(comparison.status, "")}</span>'
    tier = "" if comparison.tier == "critical" else f" <span class=quiet>({_text(comparison.tier)})</span>"
    return (
        _text(comparison.rule),
        _text(comparison.slice),
        f"{comparison.n:,}",
        value_text(comparison.metric, comparison.baseline),
        value_text(comparison.metric, comparison.variant),
        _text(difference_and_bounds(comparison)),
        flips_text(comparison),
        f"{sign}&nbsp;{_text(comparison.status)}{tier}",
    )


def _flip(flip: Flip) -> str:
    """Render a flip: its reason, the prompt, the reference and both answers with differences marked."""
    before, after = _answers(flip.baseline, flip.variant)
    head = f"<b>{_text(flip.name)}</b> ({_text(flip.metric)})"
    notes = "" if flip.first_divergence is None else f" · first other token: {flip.first_divergence}"
    notes += f" · parts in the {where}" if (where := diff.parts_in(flip)) else ""
    notes += " · changes in the A/A arm too" if flip.noisy else ""
    return (
        f'<article class="flip"><p>{head}: {_text(flip.reason)}<span class=quiet>{notes}</span></p>'
        f"{_pair(('prompt', _quoted(flip.prompt)), ('reference', _quoted(flip.reference)))}"
        f"{_pair(('baseline', before), ('variant', after))}</article>"
    )


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


_LONG_WORD = re.compile(r"[^\s<>\"=]{31,}")  # may break inside the word


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], numbers: Sequence[int]) -> str:
    """Render a table. rows: cells, HTML already. numbers: indices of the columns aligned right.

    On a phone each row is a card, so a cell carries its column's name.
    """
    classes = ["number" if index in numbers else "" for index in range(len(heads))]
    head = "".join(f'<th class="{css_class}">{name}</th>' for name, css_class in zip(heads, classes, strict=True))
    lines = []
    for row in rows:
        cells = ""
        for name, css_class, cell in zip(heads, classes, row, strict=True):
            cell_class = f"{css_class} long".strip() if _LONG_WORD.search(cell) else css_class
            cells += f'<td class="{cell_class}" data-name="{name}"><span>{cell}</span></td>'
        lines.append(f"<tr>{cells}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"


def _list(lines: Sequence[str]) -> str:
    return f"<ul>{''.join(f'<li>{_text(line)}</li>' for line in lines)}</ul>" if lines else ""


def _chip(word: str) -> str:
    return f'<span class="chip {_text(word)}">{_text(word)}</span>'


def _bits(arm: ArmLine) -> str:
    return f", {arm.sizes.effective_bits:.2f} bits a weight in memory" if arm.sizes else ""


def _counted(count: int, what: str) -> str:
    return f"{count:,} {what}" if count == 1 else f"{count:,} {what}s"


def _text(text: str) -> str:
    return escape(visible_line(text))
