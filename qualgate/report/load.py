"""What `qualgate load` found, as JSON, as rows of single requests, and as tables."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from qualgate.escaping import visible_line
from qualgate.formatting import counted
from qualgate.report import screen
from qualgate.report.plots.load import Panel, Point, throughput_and_latency
from qualgate.report.screen import fit

if TYPE_CHECKING:
    from qualgate.load.measures import Measured, Percentile
    from qualgate.load.rules import LoadVerdict
    from qualgate.load.run import Loaded
    from qualgate.load.summary import Row, Summary

NAMES = {"ttft": "TTFT", "tpot": "TPOT", "gap": "gap", "e2e": "end to end"}
READING = (
    "In brackets: 95 % intervals of order statistics, as if answers were independent. Under load they hang together, "
    "so these are the least that is not known; how far rounds lie apart says more."
)


def load_as_json(summary: Summary) -> str:
    """One object; seconds, and rates a second. What is not known is null."""
    value = {
        "definitions": summary.by,
        "load": asdict(summary.load),
        "seed": summary.seed,
        "slo": asdict(summary.slo) if summary.slo else None,
        "declared": dict(summary.told),
        "prompts": summary.prompts,
        "rows": [_row(row) for row in summary.rows],
        "notes": list(summary.notes),
        "verdicts": [_verdict(one) for one in summary.verdicts],
    }
    return json.dumps(value, indent=2, allow_nan=False)


def _row(row: Row) -> dict[str, Any]:
    numbers = asdict(row.numbers)
    numbers["failed"], numbers["retried"] = dict(row.numbers.failed), dict(row.numbers.retried)
    numbers["good"] = dict(zip(("share", "low", "high"), row.numbers.good, strict=True)) if row.numbers.good else None
    numbers["times"] = {
        name: {
            f"p{100 * one.p:g}": {
                "value": one.found.value, "low": one.found.low, "high": one.found.high, "count": one.found.count,
                "rounds": list(one.rounds),
            }
            for one in found
        }
        for name, found in row.numbers.times
    }  # fmt: skip
    return {"level": asdict(row.level), "label": row.level.label, "arm": row.arm, **numbers}


def _verdict(one: LoadVerdict) -> dict[str, Any]:
    findings = [
        {
            "rule": found.rule.label, "level": found.level.label, "verdict": found.said, "rounds": list(found.values),
            "baseline": list(found.baseline), "within": found.within, "p": found.p, "because": found.because,
        }
        for found in one.findings
    ]  # fmt: skip
    return {"variant": one.variant, "verdict": one.said, "findings": findings}


def requests_of(loaded: Loaded) -> Iterator[str]:
    """A line of JSON for each request, so that anybody's definitions can be applied to them: seconds since its stage
    began, and the place of its prompt among all cases."""
    for (arm, level), stages in loaded.stages.items():
        for number, stage in enumerate(stages):
            for one in stage.sent:
                row = {"arm": arm, "level": level.label, "round": number} | asdict(one)
                for name in ("due", "began", "ended"):
                    row[name] = round(row[name] - stage.start, 6)
                for name in ("pieces", "events"):
                    row[name] = [round(at - stage.start, 6) for at in row[name]]
                yield json.dumps(row)


def print_load(summary: Summary) -> None:
    """Print to stdout; colours only on a terminal."""
    console = screen.console()
    load, rounds = summary.load, counted(summary.load.rounds, "round")
    whose = "" if summary.by == "qualgate" else f", by the definitions of {summary.by}"
    for arm, told in summary.told:
        console.print(Text.assemble((visible_line(arm), "bold"), f"  {visible_line(told)}"))
    console.print(Text(f"{rounds}, {counted(summary.prompts, 'prompt')}, seed {summary.seed}{whose}", style="dim"))
    console.print(_throughput(summary))
    console.print(_times(summary.rows))
    console.print(Text(fit(READING), style="dim"))
    if load.rounds > 1:
        console.print(Text(fit("By round: the least and the largest 95th percentile of one."), style="dim"))
    for verdict in summary.verdicts:
        console.print(Text.assemble((visible_line(verdict.variant), "bold"), f"  {verdict.said.upper()}"))
        console.print(_findings(verdict))
    for note in summary.notes:
        console.print(Text(fit(f"note: {visible_line(note)}")))


def _throughput(summary: Summary) -> Table:
    limited = summary.slo is not None
    table = _table("level", "arm", "requests", "failed", "answers/s", "by round", "tokens/s",
                   *(("within limits", "good/s") if limited else ()))  # fmt: skip
    for row in summary.rows:
        one = row.numbers
        cells = [
            row.level.label,
            visible_line(row.arm),
            f"{one.requests:,}",
            f"{sum(count for _, count in one.failed):,}",
            f"{one.throughput:.3g}",
            _range(one.throughputs, lambda value: f"{value:.3g}"),
            "–" if one.tokens is None else f"{one.tokens:.4g}",
        ]
        if limited:
            cells += [_good(one), "–" if one.goodput is None else f"{one.goodput:.3g}"]
        table.add_row(*map(Text, cells))
    return table


def _findings(verdict: LoadVerdict) -> Table:
    table = _table("level", "rule", "verdict", "by round", "baseline's", "why")
    for one in verdict.findings:
        ranges = (
            _range([value for value in values if value is not None], lambda value: f"{value:.3g}")
            for values in (one.values, one.baseline)
        )
        why = one.because or f"{one.within} of {len(one.values)} rounds are within it (p = {one.p:.2g})"
        table.add_row(*map(Text, (one.level.label, one.rule.label, one.said, *ranges, why)))
    return table


def _good(one: Measured) -> str:
    if one.good is None:
        return "–"
    share, low, high = (100 * value for value in one.good)
    return f"{share:.1f} % [{low:.1f}, {high:.1f}]"


def _times(rows: Sequence[Row]) -> Table:
    table = _table("level", "time, ms", "arm", "p50", "p95", "p99", "p95 by round")
    for level in dict.fromkeys(row.level for row in rows):
        for name, said in NAMES.items():
            for row in (row for row in rows if row.level == level):
                if found := dict(row.numbers.times)[name]:
                    by_round = [value for value in found[1].rounds if value is not None]
                    cells = [level.label, said, visible_line(row.arm), *map(_percentile, found)]
                    table.add_row(*map(Text, [*cells, _range(by_round, _ms)]))
    return table


def _percentile(one: Percentile) -> str:
    low, high = ("…" if bound is None else _ms(bound) for bound in (one.found.low, one.found.high))
    return f"{_ms(one.found.value)} [{low}, {high}]"


def _ms(seconds: float) -> str:
    """Milliseconds with the digits that mean something: 0.213, 12.3, 1,204."""
    told = 1000 * seconds
    return f"{told:,.0f}" if told >= 100 else f"{told:.3g}"


def _range(values: Sequence[float], said: Callable[[float], str]) -> str:
    return f"{said(min(values))} … {said(max(values))}" if len(values) > 1 else ""


def _table(*heads: str) -> Table:
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for head in heads:
        words = head in ("level", "arm", "time, ms", "rule", "verdict", "why")
        table.add_column(head, justify="left" if words else "right", overflow="fold")
    return table


def load_picture(summary: Summary) -> str:
    """Throughput against the 95th percentile of TTFT, TPOT and end to end, as an SVG document."""
    counted_tokens = all(row.numbers.tokens is not None for row in summary.rows)
    limits = asdict(summary.slo) if summary.slo else {}
    panels = []
    for name in ("ttft", "tpot", "e2e"):
        points: dict[str, list[Point]] = {}
        for row in summary.rows:
            found = dict(row.numbers.times)[name]
            x = row.numbers.tokens if counted_tokens else row.numbers.throughput
            if found and x is not None:
                low, high = (None if end is None else 1000 * end for end in (found[1].found.low, found[1].found.high))
                point = Point(
                    label=row.level.label, kind=row.level.kind, x=x, y=1000 * found[1].found.value, low=low, high=high
                )
                points.setdefault(row.arm, []).append(point)
        limit = limits.get(name)
        if points:
            title = f"{NAMES[name]}, 95th percentile, ms"
            panels.append(Panel(title=title, points=points, limit=None if limit is None else 1000 * limit))
    return throughput_and_latency(
        panels,
        "output tokens a second" if counted_tokens else "answers a second",
        "Latency by throughput, level by level; bars are 95 % intervals, dotted where no end is known",
    )
