"""SARIF 2.1.0 (OASIS): a result for each broken or undecided rule, placed in the gate file."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import quote

from qualgate.report.findings import FOUR_ARM, VERDICT, Finding, findings
from qualgate.report.summary import Report
from qualgate.text.escaping import visible_line

MOST = 5000  # results; GitHub ignores those beyond
CUT = "cut"


def report_as_sarif(report: Report) -> str:
    """Render SARIF 2.1.0: one result for each finding."""
    all_findings = findings(report)
    shown = all_findings if len(all_findings) <= MOST else all_findings[: MOST - 1]
    rules = (visible_line(rule.id) for rule in report.policy.rules)
    names = dict.fromkeys((*rules, *(finding.rule for finding in shown)))
    results = [_result(finding, report.source.path) for finding in shown]
    if len(shown) < len(all_findings):
        text = f"{len(all_findings) - len(shown):,} more findings are not shown here: see the HTML or JSON report"
        names[CUT] = None
        results.append(_result_at(CUT, "warning", text, report.source.path, None))
    body = {
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [
            {
                "tool": {"driver": {"name": "qualgate", "rules": [_rule(name) for name in names]}},
                "invocations": [{"executionSuccessful": bool(report.verdicts), "exitCode": int(report.exit)}],
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }
    return json.dumps(body, indent=2, ensure_ascii=True) + "\n"


_SAID = {
    VERDICT: "The verdict on a variant",
    FOUR_ARM: "The choice among the baseline, quantization, speculation and both",
    CUT: "Findings that were left out",
}


def _rule(name: str) -> dict[str, Any]:
    description = _SAID.get(name, f"Gate rule {name}")
    return {"id": name, "shortDescription": {"text": description}}


def _result(finding: Finding, path: str) -> dict[str, Any]:
    fingerprint = {"partialFingerprints": {"qualgate/v1": finding.fingerprint}}
    return _result_at(finding.rule, finding.level, finding.message, path, finding.line) | fingerprint


def _result_at(rule: str, level: str, text: str, path: str, line: int | None) -> dict[str, Any]:
    """Return a SARIF result located in the file `path`, at `line`, or in the file as a whole if that is None."""
    region = {} if line is None else {"region": {"startLine": line}}  # without: the file as a whole
    location = {"artifactLocation": {"uri": quote(path)}, **region}
    return {
        "ruleId": rule,
        "level": level,
        "message": {"text": text},
        "locations": [{"physicalLocation": location}],
    }
