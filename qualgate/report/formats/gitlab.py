"""GitLab's code-quality report: https://docs.gitlab.com/ci/testing/code_quality/ (a JSON list of violations)."""

from __future__ import annotations

import json
from typing import Any

from qualgate.identity import content_hash
from qualgate.report.findings import Finding, findings
from qualgate.report.summary import Report

MOST = 1000  # violations; a merge request that shows more is read by nobody
SEVERITY = {"error": "critical", "warning": "major", "note": "info"}


def report_as_code_quality(report: Report) -> str:
    """GitLab's Code Quality report: one violation for each finding."""
    found = findings(report)
    shown = found if len(found) <= MOST else found[: MOST - 1]
    entries = [_violation(one, report.source.path) for one in shown]
    if len(shown) < len(found):
        cut = f"{len(found) - len(shown):,} more findings are not shown here: see the HTML or JSON report"
        entries.append(_entry(cut, "qualgate", content_hash("cut"), "major", report.source.path, None))
    return json.dumps(entries, indent=2, ensure_ascii=True) + "\n"


def _violation(one: Finding, path: str) -> dict[str, Any]:
    return _entry(one.message, one.rule, one.fingerprint, SEVERITY[one.level], path, one.line)


def _entry(text: str, rule: str, fingerprint: str, severity: str, path: str, line: int | None) -> dict[str, Any]:
    return {
        "description": text,
        "check_name": rule,
        "fingerprint": fingerprint,
        "severity": severity,
        "location": {"path": path, "lines": {"begin": line or 1}},  # the host shows nothing without a line
    }
