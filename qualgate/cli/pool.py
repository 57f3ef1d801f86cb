"""Runs handed to a pool through a store: `submit`, `status`, `wait`, `cancel`; `worker` is what a node runs."""

from __future__ import annotations

import getpass
import json
import os
import signal
import socket
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from qualgate.cli.arguments import GateFileArgument, JsonOption, StoreOption, store_url
from qualgate.cli.judging import BlameOption, FourArmOption, LimitOption, OnlyOption
from qualgate.cli.stderr import tell, tell_json
from qualgate.cli.stdout import say
from qualgate.errors import EXIT_ORDER, Exit, Interrupted, UsageError

if TYPE_CHECKING:
    from qualgate.records import SubmissionState

LOOK = 0.5  # s, between two looks at a submission that is waited for
LEASE = 60.0  # s
SubmissionArgument = Annotated[str, typer.Argument(metavar="ID", help="as `submit` printed it")]
PoolOption = Annotated[str | None, typer.Option("--store", help="the pool's store; the gate file's own without it")]


def submit(
    gate_file: GateFileArgument,
    store: PoolOption = None,
    owner: Annotated[str | None, typer.Option("--owner", help="whose it is; you, without it")] = None,
    priority: Annotated[
        int, typer.Option("--priority", min=-1000, max=1000, help="among the owner's own; the highest is first")
    ] = 0,
    blame: BlameOption = False,
    four_arm: FourArmOption = False,
    limit: LimitOption = None,
    only: OnlyOption = None,
    as_json: JsonOption = False,
) -> None:
    """Hand a run to the pool that works for a store, and print its id. Needs neither a GPU nor the models here."""
    from qualgate.config import load_gate_file
    from qualgate.pipeline.handing_over import submission_of
    from qualgate.store import submissions
    from qualgate.store.database import open_store

    url = store_url(None, store) if store is not None else load_gate_file(gate_file, files=False).store_url
    options = [
        *(["--blame"] if blame else []),
        *(["--four-arm"] if four_arm else []),
        *(["--limit", str(limit)] if limit is not None else []),
        *(word for name in only or () for word in ("--only", name)),
    ]
    handed = submission_of(gate_file, tuple(options), owner or _user(), priority)
    with open_store(url) as opened:
        name = submissions.submit(opened, handed)
        if as_json:
            _say_json(submissions.state(opened, name))
        else:
            say(name)
        tell_json(f"{name} is handed over", event="submitted", submission=name)
        if not submissions.nodes_at_work(opened):
            tell(f"note: no node works for {url} now; one does with: qualgate worker --store {url}")


def status(
    submission: Annotated[str | None, typer.Argument(metavar="[ID]", help="one; all without it")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Where submissions stand: who is at work on them, how far, and why one was given back or set apart."""
    from qualgate.report.pool import as_plain, node_lines, state_lines
    from qualgate.report.screen import fit
    from qualgate.store import leases, submissions
    from qualgate.store.database import open_store

    with open_store(store_url(None, store), create=False) as opened:
        if submission is not None:
            found = submissions.state(opened, submission)
            if as_json:
                _say_json(found)
            else:
                say(fit("\n".join(state_lines(found, whole=True))))
            return
        states, nodes = submissions.states(opened), submissions.nodes_at_work(opened)
        rescued = leases.rescued(opened)
    if as_json:
        listed = {"submissions": [as_plain(one) for one in states], "nodes": [as_plain(one) for one in nodes]}
        say(json.dumps({**listed, "rescued": rescued}, indent=2))
        return
    for one in states:
        say(fit("\n".join(state_lines(one))))
    say(fit("\n".join(node_lines(nodes, rescued))))


def cancel(submission: SubmissionArgument, store: StoreOption = None, as_json: JsonOption = False) -> None:
    """End a submission: work on it stops within seconds, and what is stored of its run stays."""
    from qualgate.escaping import visible_line
    from qualgate.report.pool import how_it_ended
    from qualgate.store import submissions
    from qualgate.store.database import open_store

    with open_store(store_url(None, store), create=False) as opened:
        before = submissions.cancel(opened, submission, _user())
        now = submissions.state(opened, submission)
    if as_json:
        _say_json(now)
    if before.status in ("done", "apart"):
        raise UsageError(f"{submission} has ended already: {how_it_ended(before)}. There is nothing to cancel.")
    if not as_json:
        at = f"; {visible_line(before.node or '')} stops within seconds" if before.status == "leased" else ""
        say(f"{submission} {'was cancelled before' if before.ended else 'is cancelled'}{at}")


def wait(
    submission: SubmissionArgument,
    store: StoreOption = None,
    timeout: Annotated[
        float | None, typer.Option("--timeout", min=0, help="seconds, after which to end with 13; it goes on")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Wait until a submission has ended, show its report, and exit by its verdict: as if it had run here.

    Exits 130 when it was cancelled, 13 when it was set apart or the timeout came first.
    """
    from qualgate.escaping import visible_line

    url = store_url(None, store)
    try:
        found = _ended(url, submission, timeout)
    except KeyboardInterrupt:
        raise Interrupted(f"{submission} goes on; `qualgate wait {submission}` waits again, `cancel` ends it") from None
    if found is None:
        tell(f"qualgate: {submission} has not ended within {timeout:g} s; it goes on")
        raise typer.Exit(Exit.INFRASTRUCTURE)
    if found.status != "done":
        if as_json:
            _say_json(found)
        how = "cancelled" if found.status == "cancelled" else "set apart"
        tell(f"qualgate: {submission} was {how}: {visible_line(found.reason)}")
        raise typer.Exit(Exit.INTERRUPTED if found.status == "cancelled" else Exit.INFRASTRUCTURE)
    raise typer.Exit(_show(url, found, as_json))


def _show(url: str, found: SubmissionState, as_json: bool) -> int:
    """The report of its run; returns the exit code: the run's own, unless its sealed verdicts say worse."""
    from qualgate import load_report
    from qualgate.escaping import visible_line
    from qualgate.report.formats import rendered
    from qualgate.report.terminal import print_report

    assert found.exit is not None, "it is done"
    if found.run_id is None or found.exit == Exit.USAGE:
        if as_json:
            _say_json(found)
        tell(f"qualgate: {found.id} could not run: {visible_line(found.reason)}")
        return found.exit or Exit.INTEGRITY  # nothing approves without a run
    report = load_report(url, found.run_id)
    if as_json:
        say(rendered(report, "json"), nl=False)
    else:
        print_report(report)
    return next((code for code in EXIT_ORDER if code in (found.exit, report.exit)), found.exit)


def _ended(url: str, submission: str, timeout: float | None) -> SubmissionState | None:
    """Its state once it has ended; None where the timeout comes first. Each change is told on stderr."""
    from qualgate.report.pool import short
    from qualgate.store import submissions
    from qualgate.store.database import open_store

    until = None if timeout is None else time.monotonic() + timeout
    told = ""
    with open_store(url, create=False) as opened:
        while True:
            found = submissions.state(opened, submission)
            if found.ended:
                return found
            if (now := short(found)) != told:
                told = now
                tell(now)
            if until is not None and time.monotonic() > until:
                return None
            time.sleep(LOOK)


def worker(
    store: StoreOption = None,
    name: Annotated[str | None, typer.Option("--name", help="of this node; host and process without it")] = None,
    lease: Annotated[
        float, typer.Option("--lease", min=3, max=86_400, help="seconds after which a dead node's work is taken over")
    ] = LEASE,
    per_owner: Annotated[
        int | None, typer.Option("--per-owner", min=1, help="submissions of one owner at work at once, in the pool")
    ] = None,
    folder: Annotated[
        Path | None, typer.Option("--folder", help="where to lay out what submissions carry; below ~/.cache without it")
    ] = None,
    until_empty: Annotated[bool, typer.Option("--until-empty", help="end when nothing waits for this node")] = False,
) -> None:
    """Be a node of a pool: take submissions of a store one after the other, each in a process of its own."""
    from qualgate.pipeline.locks import stop_requested
    from qualgate.pipeline.node import Node
    from qualgate.store.database import open_store

    url = store_url(None, store)
    named = name or f"{socket.gethostname()}:{os.getpid()}"
    there = folder or submissions_folder()
    with open_store(url, create=False) as opened, stop_requested() as stop:
        node = Node(
            name=named,
            store=opened,
            seconds=lease,
            folder=there.absolute(),
            per_owner=per_owner,
            say=lambda line, **about: _tell_of_node(named, line, about),
            stop=stop,
        )
        tell(f"node {named} works for {url}; Ctrl-C or SIGTERM ends it, and gives back what it is at")
        node.work(until_empty=until_empty)
        received = stop()
    if received is not None:
        raise typer.Exit(Exit.TERMINATED if received == signal.SIGTERM else Exit.INTERRUPTED)


def _tell_of_node(node: str, line: str, about: dict[str, Any]) -> None:
    from qualgate.errors.log_lines import is_json
    from qualgate.escaping import visible_line

    when = "" if is_json() else f"{time.strftime('%H:%M:%S')} "
    tell(f"{when}{visible_line(line)}", **about, node=node)


def submissions_folder() -> Path:
    """Where a node lays out what submissions carry, unless it is told."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "qualgate" / "submissions"


def _say_json(found: SubmissionState) -> None:
    from qualgate.report.pool import as_plain

    say(json.dumps(as_plain(found), indent=2))


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user may have no name
        return f"uid {os.getuid()}"
