"""Every Eval Ever's records (schema 0.3): a line of JSON for each arm, with the scores that rules compared.

A score stands once for each metric and slice; the verdict, the bounds of the difference and the margin are its details.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

from qualgate.records import Comparison, Verdict
from qualgate.records.identity import own_version
from qualgate.records.metrics import METRICS
from qualgate.report.summary import Report
from qualgate.text.escaping import visible_line

SCHEMA = "0.3.0"
BASELINE = "baseline"
NOT_KNOWN = {"deployment_type": "unknown", "model_availability": "unknown"}  # a report names no provider


def report_as_every_eval(report: Report) -> str:
    """Render one record a line: the baseline's, then each variant's."""
    weights = {arm.name: arm.weights for arm in report.run.arms}
    records = []
    if report.verdicts:
        records.append(_record(report, BASELINE, weights.get(BASELINE, ""), list(_of_baseline(report))))
    for verdict in report.verdicts:
        results = [_result(line, line.variant, verdict) for line in verdict.comparisons if line.variant is not None]
        records.append(_record(report, verdict.variant, weights.get(verdict.variant, ""), results, verdict))
    return "".join(json.dumps(record, ensure_ascii=True, allow_nan=False) + "\n" for record in records)


def _of_baseline(report: Report) -> Iterator[dict[str, Any]]:
    seen = set()
    for line in (line for verdict in report.verdicts for line in verdict.comparisons):
        if line.baseline is not None and not line.against and (line.metric, line.slice) not in seen:
            seen.add((line.metric, line.slice))
            yield _result(line, line.baseline, None)


def _record(
    report: Report, arm: str, weights: str, results: list[dict[str, Any]], verdict: Verdict | None = None
) -> dict[str, Any]:
    """One arm's record. verdict: on it; None for the baseline."""
    time = report.run.finished_at or report.run.created_at
    seconds = str(int(datetime.fromisoformat(time).astimezone(UTC).timestamp())) if time else "0"
    name, details = visible_line(arm), {"weights": visible_line(weights), **NOT_KNOWN}
    if verdict is not None:
        details |= {"verdict": verdict.word, "why": visible_line("; ".join(verdict.reasons))[:1000]}
    return {
        "schema_version": SCHEMA,
        "evaluation_id": f"qualgate/{name}/{visible_line(report.run.run_id)}",
        "retrieved_timestamp": seconds,
        "source_metadata": {
            "source_name": visible_line(report.run.run_id),
            "source_type": "evaluation_run",
            "source_organization_name": "not said",
            "evaluator_relationship": "other",
        },
        "eval_library": {"name": "qualgate", "version": own_version()},
        "model_info": {"name": name, "id": name, "additional_details": details},
        "evaluation_results": results,
    }


def _result(line: Comparison, score: float, verdict: Verdict | None) -> dict[str, Any]:
    """One score. verdict: of the variant whose score it is; None for the baseline's."""
    metric = METRICS.get(line.metric)
    config: dict[str, Any] = {
        "evaluation_description": line.metric,
        "lower_is_better": metric is not None and metric.better == "lower",
    }
    if metric is not None and metric.kind == "quality":
        config |= {"score_type": "continuous", "min_score": 0.0, "max_score": 1.0}
    numbers = {"difference": line.difference, "lower": line.lower, "upper": line.upper}
    details = {"pairs": str(line.n)}
    if verdict is not None:
        details |= {"rule": line.rule, "status": line.status, "method": line.method}
        details |= {name: repr(number) for name, number in numbers.items() if number is not None}
    return {
        "evaluation_name": line.head,
        "source_data": {"dataset_name": visible_line(line.slice), "source_type": "other"},
        "metric_config": config,
        "score_details": {"score": float(score), "details": {k: visible_line(v) for k, v in details.items()}},
    }
