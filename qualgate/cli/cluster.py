"""Runs on a Ray cluster: `submit` starts one, `status`, `wait` and `cancel` ask Ray about it."""

from __future__ import annotations

import json
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qualgate.cli.arguments import GateFileArgument, JsonOption
from qualgate.cli.judging import BlameOption, FourArmOption, LimitOption, OnlyOption
from qualgate.cli.stderr import tell
from qualgate.cli.stdout import say
from qualgate.errors import Exit, InfrastructureError, Interrupted, QualgateError, UsageError

if TYPE_CHECKING:
    from qualgate.pipeline.cluster.inside import End
    from qualgate.pipeline.cluster.jobs import Cluster, Job

LOOK_SECONDS = 2.0  # between two requests for the state of an awaited job
PATIENCE = 120.0  # seconds to retry an unresponsive cluster; the run itself goes on
LAST_LINES = 12  # of the log, shown if a run ended without a report
ClusterOption = Annotated[
    str, typer.Option("--cluster", metavar="URL", help="the dashboard of the Ray cluster, such as http://HEAD:8265")
]
IdArgument = Annotated[str, typer.Argument(metavar="ID", help="the id that `submit` printed")]


def submit(
    gate_file: GateFileArgument,
    cluster: ClusterOption,
    folder: Annotated[
        str,
        typer.Option(
            "--folder", metavar="PATH", help="working folder of the run, on storage that all nodes of the cluster share"
        ),
    ] = "",
    blame: BlameOption = False,
    four_arm: FourArmOption = False,
    limit: LimitOption = None,
    only: OnlyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hand a run to a Ray cluster, and print the id of its job. Needs neither a GPU nor the models here."""
    from qualgate.config import load_gate_file
    from qualgate.pipeline.cluster.jobs import reach
    from qualgate.pipeline.cluster.travel import files_that_travel

    if folder and not Path(folder).is_absolute():
        raise UsageError(f"--folder {folder!r:.200}: give an absolute path, by which all nodes of the cluster find it")
    gate = load_gate_file(gate_file, files=False)
    files = files_that_travel(gate)
    options = [
        *(["--blame"] if blame else []),
        *(["--four-arm"] if four_arm else []),
        *(["--limit", str(limit)] if limit is not None else []),
        *(word for name in only or () for word in ("--only", name)),
    ]
    server = reach(cluster)
    tell(f"to {cluster} travel: {', '.join(sorted(files))}")
    job = server.submit(files, gate.path.name, options, folder)
    say(json.dumps({"id": job, "files": sorted(files)}, indent=2) if as_json else job)


def status(job: IdArgument, cluster: ClusterOption, as_json: JsonOption = False) -> None:
    """Show where a run on a cluster stands: waiting, at work, or how it ended."""
    from qualgate.pipeline.cluster.jobs import reach

    server = reach(cluster)
    state = server.job(job)
    _show_state(state, server.end(state) if state.has_ended else None, as_json)


def cancel(job: IdArgument, cluster: ClusterOption) -> None:
    """End a run on a cluster. What is stored of it stays, and submitting it again resumes it."""
    from qualgate.pipeline.cluster.jobs import reach

    server = reach(cluster)
    if not server.stop(job):
        raise UsageError(f"{job} has already ended ({server.job(job).status}); there is nothing to cancel.")
    say(f"{job} was asked to stop; `qualgate wait {job} --cluster {cluster}` shows when it has")


def wait(
    job: IdArgument,
    cluster: ClusterOption,
    timeout: Annotated[
        float | None,
        typer.Option(
            "--timeout", min=0, help="stop waiting after this many seconds and exit with 13; the run continues"
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Wait for a run on a cluster, show its report, and exit with the run's own exit code.

    Exits 13 when the run did not say how it ended, or the timeout came first.
    """
    from qualgate.pipeline.cluster.jobs import reach

    server = reach(cluster)
    try:
        state = _ended(server, job, timeout)
    except KeyboardInterrupt:
        raise Interrupted(f"{job} is still running; `qualgate wait` waits again, `qualgate cancel` stops it") from None
    if state is None:
        raise InfrastructureError(f"{job} is still running after {timeout:g} s")
    end = server.end(state)
    if end is None or end.fault:
        if as_json:
            _show_state(state, end, as_json)
        else:
            say(_last_lines(server, job))
        why = end.fault if end else f"{job} did not say how its run ended: {state.by_ray}."
        raise InfrastructureError(f"{why} Submit it again: it resumes.")
    if as_json and not end.report:
        _show_state(state, end, as_json)
    elif as_json:
        say(end.report, nl=False)
    else:
        say(end.shown or _last_lines(server, job), nl=not end.shown)
    raise typer.Exit(end.exit)


def _ended(server: Cluster, job: str, timeout: float | None) -> Job | None:
    """Return the job once it has ended; None if the timeout comes first. Changes of state are printed on stderr."""
    began = answered = time.monotonic()
    before = ""
    while True:
        try:
            state = server.job(job)
            answered = time.monotonic()
        except InfrastructureError:
            if time.monotonic() - answered > PATIENCE:
                raise
        else:
            if state.has_ended:
                return state
            if state.status != before:
                before = state.status
                tell(f"{job}: {_in_words(state, None)}")
        if timeout is not None and time.monotonic() - began > timeout:
            return None
        time.sleep(LOOK_SECONDS)


def _show_state(state: Job, end: End | None, as_json: bool) -> None:
    """Print a job's state and its times on one line, or as JSON. end: the exit that its run reported, if any."""
    if as_json:
        say(json.dumps(asdict(state) | {"exit": end.exit if end else None}, indent=2))
        return
    from qualgate.text.escaping import visible_line

    times = [f"{what} {_time(when)}" for what, when in (("began", state.began), ("ended", state.ended)) if when]
    say(visible_line("  ".join([state.id, state.gate_file, _in_words(state, end), *times])))


def _in_words(state: Job, end: End | None) -> str:
    if end is not None:
        return f"ended, exit {end.exit} ({Exit(end.exit).name.lower()}){f': {end.fault}' if end.fault else ''}"
    words = {"PENDING": "waits for its turn", "RUNNING": "at work", "STOPPED": "was cancelled"}
    return words.get(state.status, f"ended without saying how ({state.by_ray})")


def _last_lines(server: Cluster, job: str) -> str:
    """Return at most LAST_LINES of the job's log, from the last error on, without the line for machines; "" if there is
    no log."""
    from qualgate.pipeline.cluster.inside import MARK
    from qualgate.text.escaping import visible

    try:
        lines = [line for line in server.log(job).splitlines() if line and not line.startswith(MARK)]
    except QualgateError:
        return ""
    errors = [number for number, line in enumerate(lines) if line.startswith("qualgate: ")]
    return visible("\n".join(lines[errors[-1] if errors else -LAST_LINES :][:LAST_LINES]))


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
