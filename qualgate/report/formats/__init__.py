"""Render a report in one of many formats, a module each; each states what its host's limits made it leave out."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path

from qualgate.errors import UsageError
from qualgate.report.render import write_atomically
from qualgate.report.summary import Report
from qualgate.text.escaping import unread

FORMATS = {  # --format → module, function
    "json": ("body", "report_as_json"),
    "markdown": ("markdown", "report_as_markdown"),
    "html": ("html", "report_as_html"),
    "junit": ("junit", "report_as_junit"),
    "comment": ("comment", "report_as_comment"),
    "github": ("github", "report_as_step_summary"),
    "annotations": ("github", "report_as_annotations"),
    "gitlab": ("gitlab", "report_as_code_quality"),
    "sarif": ("sarif", "report_as_sarif"),
    "otel": ("otel", "report_as_otel"),
    "every-eval": ("every_eval", "report_as_every_eval"),
}
WRITTEN = {"json": "json", "md": "markdown", "html": "html"}  # by `run`: a file's ending → its format


def rendered(report: Report, form: str) -> str:
    """Render the report in one of FORMATS (else UsageError). The same stored evidence gives the same bytes.

    Except in `annotations`, no line is a command to a CI runner, whatever the store holds.
    """
    if form not in FORMATS:
        raise UsageError(f"--format {form}: not one of terminal, {', '.join(FORMATS)}.")
    module, function = FORMATS[form]
    render: Callable[[Report], str] = getattr(import_module(f"{__name__}.{module}"), function)
    return render(report) if form == "annotations" else unread(render(report))


def write_report(report: Report, folder: Path) -> tuple[Path, ...]:
    """Write RUN_ID.json, .md and .html into `folder`, each whole or not at all; UsageError where it cannot be done."""
    written = {folder / f"{report.run.run_id}.{end}": form for end, form in WRITTEN.items()}
    for path, form in written.items():
        write_atomically(path, rendered(report, form))
    return tuple(written)
