"""GitLab's code-quality report: https://docs.gitlab.com/ci/testing/code_quality/ (a JSON list of violations)."""

from __future__ import annotations

import json
from typing import Any

from qualgate.identity import content_hash
from qualgate.report.findings import Finding, findings
from qualgate.report.summary import Report

MOST = 1000  # violations; nobody reads more on a merge request
SEVERITY = {"error": "critical", "warning": "major", "note": "info"}


def report_as_code_quality(report: Report) -> str:
    """Render GitLab's Code Quality report: one violation for each finding."""
    every = findings(report)
    shown = every if len(every) <= MOST else every[: MOST - 1]
    entries = [_violation(finding, report.source.path) for finding in shown]
    if len(shown) < len(every):
        cut = f"{len(every) - len(shown):,} more findings are not shown here: see the HTML or JSON report"
        entries.append(_entry(cut, "qualgate", content_hash("cut"), "major", report.source.path, None))
    return json.dumps(entries, indent=2, ensure_ascii=True) + "\n"


def _violation(finding: Finding, path: str) -> dict[str, Any]:
    return _entry(finding.message, finding.rule, finding.fingerprint, SEVERITY[finding.level], path, finding.line)


def _entry(text: str, rule: str, fingerprint: str, severity: str, path: str, line: int | None) -> dict[str, Any]:
    return {
        "description": text,
        "check_name": rule,
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": path, "lines": {"begin": line or 1}},  # the host shows nothing without a line
    }
