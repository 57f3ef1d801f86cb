"""GitLab's code-quality report: https://docs.gitlab.com/ci/testing/code_quality/ (a JSON list of violations)."""

from __future__ import annotations

import json
from typing import Any

from qualgate.records.identity import content_hash
from qualgate.report.findings import Finding, findings
from qualgate.report.summary import Report

MOST = 1000  # violations; nobody reads more on a merge request
SEVERITY = {"error": "critical", "warning": "major", "note": "info"}


def report_as_code_quality(report: Report) -> str:
    """Render GitLab's Code Quality report: one violation for each finding."""
    all_findings = findings(report)
    shown = all_findings if len(all_findings) <= MOST else all_findings[: MOST - 1]
    entries = [_violation(finding, report.source.path) for finding in shown]
    if len(shown) < len(all_findings):
        message = f"{len(all_findings) - len(shown):,} more findings are not shown here: see the HTML or JSON report"
        entries.append(_entry(message, "qualgate", content_hash("cut"), "major", report.source.path, None))
    return json.dumps(entries, indent=2, ensure_ascii=True) + "\n"


def _violation(finding: Finding, path: str) -> dict[str, Any]:
    return _entry(finding.message, finding.rule, finding.fingerprint, SEVERITY[finding.level], path, finding.line)


def _entry(text: str, rule: str, fingerprint: str, severity: str, path: str, line: int | None) -> dict[str, Any]:
    """Return one violation. fingerprint: identifies it from report to report. line: in the gate file at `path`, 1 if
    None."""
    return {
        "description": text,
        "check_name": rule,
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": path, "lines": {"begin": line or 1}},  # the host shows nothing without a line
    }
