"""The report of `qualgate load`, as JSON, as rows of single requests, and on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich import table as rich_table
from rich.text import Text

from qualgate.escaping import visible_line
from qualgate.report import load_tables, screen
from qualgate.report.load_tables import Body, Table
from qualgate.report.screen import fit

if TYPE_CHECKING:
    from qualgate.load.rules import LoadVerdict
    from qualgate.load.run import Loaded
    from qualgate.load.summary import Row, Summary


def load_body(summary: Summary) -> dict[str, Any]:
    """Return the JSON body stored and written to load.json: seconds, and rates per second; None where unknown."""
    return {
        "definitions": summary.by,
        "load": asdict(summary.load),
        "seed": summary.seed,
        "slo": asdict(summary.slo) if summary.slo else None,
        "declared": dict(summary.declarations),
        "prompts": summary.prompts,
        "rows": [_row(row) for row in summary.rows],
        "notes": list(summary.notes),
        "verdicts": [_verdict(verdict) for verdict in summary.verdicts],
    }


def _row(row: Row) -> dict[str, Any]:
    """Return one arm's numbers at one level as JSON values, percentiles by name ("p95")."""
    numbers: dict[str, Any] = asdict(row.numbers)
    numbers["failed"], numbers["retried"] = dict(row.numbers.failed), dict(row.numbers.retried)
    numbers["good"] = dict(zip(("share", "low", "high"), row.numbers.good, strict=True)) if row.numbers.good else None
    numbers["times"] = {
        name: {
            f"p{100 * percentile.p:g}": {
                "value": percentile.pooled.value, "low": percentile.pooled.low, "high": percentile.pooled.high,
                "count": percentile.pooled.count, "rounds": list(percentile.rounds),
            }
            for percentile in percentiles
        }
        for name, percentiles in row.numbers.times
    }  # fmt: skip
    return {"level": asdict(row.level), "label": row.level.label, "arm": row.arm, **numbers}


def _verdict(verdict: LoadVerdict) -> dict[str, Any]:
    """Return a variant's verdict and its findings, one for each rule and level, as JSON values."""
    findings = [
        {
            "rule": finding.rule.label, "level": finding.level.label, "verdict": finding.word,
            "rounds": list(finding.values), "baseline": list(finding.baseline), "within": finding.within,
            "p": finding.p, "because": finding.because,
        }
        for finding in verdict.findings
    ]  # fmt: skip
    return {"variant": verdict.variant, "verdict": verdict.word, "findings": findings}


def requests_of(loaded: Loaded) -> Iterator[str]:
    """Yield a line of JSON for each request: its times in seconds since the stage's start, and its prompt's index."""
    for (arm, level), stages in loaded.stages.items():
        for number, stage in enumerate(stages):
            for request in stage.sent:
                row: dict[str, Any] = {"arm": arm, "level": level.label, "round": number} | asdict(request)
                for name in ("due", "began", "ended"):
                    row[name] = round(row[name] - stage.start, 6)
                for name in ("pieces", "events"):
                    row[name] = [round(moment - stage.start, 6) for moment in row[name]]
                yield json.dumps(row)


def print_load(body: Body) -> None:
    """Print the load to stdout, with colours only on a terminal."""
    console = screen.console()
    for arm, settings in body["declared"].items():
        console.print(Text.assemble((visible_line(arm), "bold"), f"  {visible_line(settings)}"))
    console.print(Text(load_tables.measured_line(body), style="dim"))
    console.print(_rich_table(load_tables.throughput_table(body)))
    console.print(_rich_table(load_tables.times_table(body)))
    console.print(Text(fit(load_tables.READING), style="dim"))
    if body["load"]["rounds"] > 1:
        console.print(Text(fit(load_tables.BY_ROUND), style="dim"))
    for verdict in body["verdicts"]:
        console.print(Text.assemble((visible_line(verdict["variant"]), "bold"), f"  {verdict['verdict'].upper()}"))
        console.print(_rich_table(load_tables.rules_table(verdict)))
    for note in body["notes"]:
        console.print(Text(fit(f"note: {visible_line(note)}")))


def _rich_table(content: Table) -> rich_table.Table:
    """Return the table for a terminal, with stored text made visible."""
    table = rich_table.Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim")
    for index, head in enumerate(content.heads):
        table.add_column(head, justify="right" if index in content.numbers else "left", overflow="fold")
    for row in content.rows:
        table.add_row(*(Text(visible_line(cell)) for cell in row))
    return table
