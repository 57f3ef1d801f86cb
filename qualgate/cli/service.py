"""The installation and its store: `dashboard`, `doctor`, `bench`."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, NoReturn

import typer

from qualgate.cli.arguments import JsonOption, OptionalGateFile, StoreOption, store_url, store_url_of
from qualgate.cli.stdout import say
from qualgate.errors import Exit, UsageError
from qualgate.errors.extras import needs


def dashboard(
    gate_file: OptionalGateFile = None,
    store: StoreOption = None,
    port: Annotated[int, typer.Option("--port", min=1, max=65535, help="on 127.0.0.1")] = 8501,
) -> None:
    """Open the reviewers' dashboard on this machine: runs, queue, flips, approve and block."""
    import importlib.util
    import signal
    import socket
    import subprocess

    from qualgate.store.database import open_store

    if importlib.util.find_spec("streamlit") is None:
        raise UsageError(needs("the dashboard", "dashboard"))
    url = store_url_of(gate_file, store)
    with socket.socket() as tried:
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            raise UsageError(f"port {port} on this machine is taken ({error.strerror}); give another --port") from None
    open_store(url, create=False).close()  # one that is missing, older or newer is refused here, as `runs` does
    say(f"dashboard: http://127.0.0.1:{port}   (Ctrl-C ends it)")
    command = [sys.executable, "-m", "qualgate_app.serve", str(port)]
    # It ends when its input does, which closes with this process, however that ends.
    with subprocess.Popen(command, stdin=subprocess.PIPE, env={**os.environ, "QUALGATE_STORE": url}) as served:
        signal.signal(signal.SIGTERM, lambda *_: served.terminate())
        try:
            code = served.wait()
        except KeyboardInterrupt:
            code = 0
        code = 0 if code == -signal.SIGTERM else code
    raise typer.Exit(Exit.APPROVE if code == 0 else Exit.INFRASTRUCTURE)


def doctor(
    gate_file: OptionalGateFile = None,
    service: Annotated[
        bool, typer.Option("--service", help="look at a store and its pool instead: exits 13 where a run would stop")
    ] = False,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Tell what is ready on this machine, what is optional and missing, and what stops a run: then it exits with 13."""
    from qualgate.cli.doctor import as_text, findings, stops_a_run
    from qualgate.report.screen import fit
    from qualgate.served.engines import PROFILES, profile_lines

    if service:
        _look_at_service(gate_file, store, as_json)
    if gate_file is not None or store is not None:
        raise UsageError("a gate file and --store go with --service; this machine is looked at without them.")
    found = findings()
    if as_json:
        engines = [{"what": f"engine {one.name}", "state": "ready", "detail": asdict(one)} for one in PROFILES]
        say(json.dumps([*map(asdict, found), *engines], indent=2))
    else:
        say(fit(as_text(found)))
        say("\nWhat servers offer whose arms you judge, by their documentation (`engine:` names one):")
        for line in profile_lines():
            say(fit(line))
    raise typer.Exit(Exit.INFRASTRUCTURE if stops_a_run(found) else Exit.APPROVE)


def _look_at_service(gate_file: Path | None, store: str | None, as_json: bool) -> NoReturn:
    from qualgate.cli.doctor import as_text, stops_a_run
    from qualgate.cli.doctor_service import service_findings
    from qualgate.config import load_gate_file
    from qualgate.report.screen import fit

    gate = load_gate_file(gate_file, files=False) if gate_file is not None else None
    found = service_findings(store_url(gate.store_url if gate else None, store), gate)
    say(json.dumps([asdict(finding) for finding in found], indent=2) if as_json else fit(as_text(found)))
    raise typer.Exit(Exit.INFRASTRUCTURE if stops_a_run(found) else Exit.APPROVE)


def bench(
    name: Annotated[str | None, typer.Argument(help="a benchmark's name")] = None,
    listed: Annotated[bool, typer.Option("--list", help="list the benchmarks")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="fewer rounds, every goal")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="ROW", help="one row of decode, decisions or scoring, or more"),
    ] = None,
    out: Annotated[Path | None, typer.Option("--json", help="write the result to this file")] = None,
) -> None:
    """Run one of the benchmarks behind the figures in the README."""
    from qualgate.bench import listing, run_benchmark
    from qualgate.report.render import write_atomically
    from qualgate.report.screen import fit

    if listed or name is None:
        for line in listing():
            say(fit(line))
        return
    result = json.dumps(run_benchmark(name, quick=quick, only=only or ()), indent=2) + "\n"
    if out is None:
        say(result)
    else:
        write_atomically(out, result)
        say(f"written: {out}")
