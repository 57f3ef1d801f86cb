"""Load and print a run's report, and give it to a CI host."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import TYPE_CHECKING

import typer

from qualgate.cli.stderr import tell
from qualgate.cli.stdout import say

if TYPE_CHECKING:
    from qualgate.config import GateFile
    from qualgate.pipeline.outcome import Outcome
    from qualgate.report.summary import Report


def shown_report(
    url: str, run_id: str | None, gate: GateFile | None, warn_only: bool = False, outcome: Outcome | None = None
) -> Report:
    """Load the report. Findings point at the given gate file, else at the text stored with the run. outcome: a decision
    that was not stored; None: use the stored verdicts."""
    from qualgate.report.source import source_of
    from qualgate.report.summary import load_report
    from qualgate.store.queries import unstored

    source = source_of(gate.path, gate.policy) if gate is not None else None
    verdicts = unstored(outcome.verdicts, outcome.policy) if outcome is not None and outcome.policy is not None else ()
    return replace(load_report(url, run_id, source, verdicts), warn_only=warn_only)


def show_report(report: Report, as_json: bool) -> None:
    """Print a report on stdout, for people or as JSON."""
    if as_json:
        from qualgate.report.formats import rendered

        say(rendered(report, "json"), nl=False)
    else:
        from qualgate.report.terminal import print_report

        print_report(report)


def show_signed(outcome: Outcome) -> None:
    """Print which key signed a run's verdicts, if there is one."""
    from qualgate.store.signing.keys import KEY, own_key

    if outcome.verdicts and (key := own_key()) is not None:
        say(f"signed: the verdicts and their evidence, with the key {key.public_key.keyid[:12]} of {KEY}")


def tell_host(report: Report, annotated: bool = False) -> None:
    """Write GitHub Actions' step summary, and annotations on stderr unless `annotated` on stdout; both are read."""
    from qualgate.report.formats import rendered
    from qualgate.report.formats.github import append_step_summary

    try:
        append_step_summary(report)
    except OSError as error:  # no reason to lose the verdict
        tell(f"qualgate: the step summary cannot be written ({error.strerror})")
    if os.environ.get("GITHUB_ACTIONS") == "true" and not annotated:
        typer.echo(rendered(report, "annotations"), err=True, nl=False)
