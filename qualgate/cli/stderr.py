"""Messages of a command beside its answer: notes, faults, the error it ends with."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from qualgate.pipeline.events import Event


def tell(text: str, **about: Any) -> None:
    """To stderr, wrapped to its width where it is a terminal; a pipe or a log gets lines as they are. A live progress
    bar puts the text above itself: while it lives, it stands for stderr.

    about: what goes with it where lines are JSON, see `log_lines`; `level` is one of them.
    """
    from qualgate.errors.log_lines import is_json, log_line
    from qualgate.escaping import unread
    from qualgate.report.screen import fit_error

    print(log_line(text, **about) if is_json() else unread(fit_error(text)), file=sys.stderr, flush=True)


def exit_code(true: int, warn_only: bool) -> int:
    """What a command that judges exits with: 0 under --warn-only, which tells the true code."""
    if warn_only and true:
        tell(f"qualgate: WARN ONLY: the true exit code is {int(true)}; exiting with 0 as --warn-only asks")
    return 0 if warn_only else int(true)


def tell_json(text: str, **about: Any) -> None:
    """What nobody needs to read who sits before it: told where lines are JSON."""
    from qualgate.errors.log_lines import is_json

    if is_json():
        tell(text, **about)


def tell_event(event: Event) -> None:
    """Likewise, of a run."""
    from qualgate.errors.log_lines import all_are_about
    from qualgate.pipeline.tracing import is_wanted, trace_id

    if event.what == "begun":  # progress and notes are told by who knows of no run
        trace = trace_id(event.run) if is_wanted() else ""
        all_are_about(run=event.run, trace=trace)
    about = {"event": event.what, "arm": event.arm, "job": event.job, "exit": event.exit}
    level = "warning" if event.what == "failed" else "info"
    tell_json(event.message, level=level, **about, run=event.run)
