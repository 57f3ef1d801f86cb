"""The report of `qualgate load`, as JSON, as rows of single requests, and on a terminal."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from qualgate.report import screen
from qualgate.report.blocks import Note, Section
from qualgate.report.load_sections import Body, measured_line, measured_section, rules_sections, servers_section
from qualgate.report.terminal_blocks import print_sections

if TYPE_CHECKING:
    from qualgate.pipeline.load.rules import LoadVerdict
    from qualgate.pipeline.load.run import Loaded
    from qualgate.pipeline.load.summary import Row, Summary


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
    """Print the load to stdout, with colours only on a terminal; the verdicts come last."""
    measured = Section("", (Note(measured_line(body), kind="quiet"),))
    print_sections(screen.console(), [servers_section(body), measured, measured_section(body), *rules_sections(body)])
