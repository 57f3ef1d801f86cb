"""Messages of a command on stderr: notes, faults, the error it ends with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qualgate.pipeline.events import Event


def tell(text: str, **about: Any) -> None:
    """Print to stderr, wrapped to the width of a terminal but not for a pipe or a log. A live progress bar replaces
    stderr and puts the text above itself.

    about: fields for JSON lines, such as `level`; see `log_lines`.
    """
    from qualgate.errors.log_lines import is_json, log_line
    from qualgate.report.screen import fit_error
    from qualgate.text.escaping import unread

    print(log_line(text, **about) if is_json() else unread(fit_error(text)), file=sys.stderr, flush=True)


def exit_code(true: int, warn_only: bool) -> int:
    """Return a judging command's exit code: 0 with --warn-only, which prints the true code."""
    if warn_only and true:
        tell(f"qualgate: WARN ONLY: the true exit code is {int(true)}; exiting with 0 as --warn-only asks")
    return 0 if warn_only else int(true)


def tell_json(text: str, **about: Any) -> None:
    """Print a message only as a JSON line; people at the terminal do not need it."""
    from qualgate.errors.log_lines import is_json

    if is_json():
        tell(text, **about)


def tell_event(event: Event) -> None:
    """Print a run's event, only as a JSON line."""
    from qualgate.errors.log_lines import all_are_about
    from qualgate.pipeline.tracing import is_wanted, trace_id

    if event.what == "begun":  # later progress lines and notes do not know the run
        trace = trace_id(event.run) if is_wanted() else ""
        all_are_about(run=event.run, trace=trace)
    about = {"event": event.what, "arm": event.arm, "job": event.job, "exit": event.exit}
    level = "warning" if event.what == "failed" else "info"
    tell_json(event.message, level=level, **about, run=event.run)
