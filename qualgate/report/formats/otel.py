"""OpenTelemetry's `gen_ai.evaluation.result` events, as OTLP's JSON: a log record for each verdict and each rule.

A collector reads the file (`otlpjsonfile`) or is sent it (`POST /v1/logs`). Attributes by the semantic conventions for
generative AI (status: development): name, score value, label and explanation; qualgate's own begin with `qualgate.`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from qualgate.records import Comparison, Verdict
from qualgate.records.identity import own_version
from qualgate.report.summary import Report
from qualgate.text.escaping import visible_line

EVENT = "gen_ai.evaluation.result"
LONGEST = 1000  # characters of an explanation
Attributes = dict[str, str | float | int]
LABELS = {"proven": "pass", "broken": "fail", "undecided": "undecided"}


def report_as_otel(report: Report) -> str:
    """Render OTLP/JSON logs: per variant an event for its verdict, then one for each rule and slice."""
    records = [record for verdict in report.verdicts for record in _records(verdict, report)]
    scope = {"name": "qualgate", "version": own_version()}
    resource = {"attributes": [_attribute("service.name", "qualgate")]}
    body = {"resourceLogs": [{"resource": resource, "scopeLogs": [{"scope": scope, "logRecords": records}]}]}
    return json.dumps(body, ensure_ascii=True, allow_nan=False) + "\n"  # one line: `otlpjsonfile` reads line by line


def _records(verdict: Verdict, report: Report) -> Iterator[dict[str, Any]]:
    """Yield the events of one variant, at the time when its run ended."""
    time = report.run.finished_at or report.run.created_at
    nanoseconds = str(int(datetime.fromisoformat(time).astimezone(UTC).timestamp()) * 10**9) if time else "0"
    of_run: Attributes = {"qualgate.run": report.run.run_id, "qualgate.variant": verdict.variant}
    of_verdict: Attributes = {
        "gen_ai.evaluation.name": "qualgate.verdict",
        "gen_ai.evaluation.score.label": verdict.word,
        "gen_ai.evaluation.explanation": _short("; ".join(verdict.reasons)),
    }
    yield _record(nanoseconds, of_run | of_verdict)
    for comparison in verdict.comparisons:
        yield _record(nanoseconds, of_run | _of_rule(comparison))


def _of_rule(comparison: Comparison) -> Attributes:
    """The attributes of one rule on one slice; the score is the variant's own."""
    numbers = {
        "gen_ai.evaluation.score.value": comparison.variant,
        "qualgate.baseline": comparison.baseline,
        "qualgate.difference": comparison.difference,
        "qualgate.lower": comparison.lower,
        "qualgate.upper": comparison.upper,
    }
    return {
        "gen_ai.evaluation.name": comparison.metric,
        "gen_ai.evaluation.score.label": LABELS.get(comparison.status, comparison.status),
        "gen_ai.evaluation.explanation": _short(comparison.reason or f"{comparison.rule} {comparison.status}"),
        "qualgate.rule": comparison.rule,
        "qualgate.slice": comparison.slice,
        "qualgate.against": comparison.against or "baseline",
        "qualgate.tier": comparison.tier,
        "qualgate.pairs": comparison.n,
    } | {name: float(number) for name, number in numbers.items() if number is not None}


def _record(nanoseconds: str, attributes: Attributes) -> dict[str, Any]:
    return {
        "timeUnixNano": nanoseconds,
        "severityNumber": 9,  # INFO
        "eventName": EVENT,
        "attributes": [_attribute(name, value) for name, value in attributes.items()],
    }


def _attribute(name: str, value: str | float) -> dict[str, Any]:
    if isinstance(value, str):
        return {"key": name, "value": {"stringValue": visible_line(value)}}
    return {"key": name, "value": {"intValue": str(value)} if isinstance(value, int) else {"doubleValue": value}}


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else text[: LONGEST - 1] + "…"
