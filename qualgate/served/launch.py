"""Start servers one after the other, each for the jobs of its own arms; none outlives the run."""

from __future__ import annotations

import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from http.client import HTTPConnection, HTTPException
from pathlib import Path

from qualgate.errors import InfrastructureError, IntegrityError, UsageError
from qualgate.records import ArmSpec, Job, JobFailure, JobResult
from qualgate.served import keeper
from qualgate.served.local_weights import weights_of
from qualgate.text.escaping import visible

START_SECONDS = 1800.0  # in which a server is to answer: large models load for long
POLL_SECONDS = 0.2
KEYED = (401, 403)  # of pages that want a key, as LiteLLM's `/health` does: they come from a server that runs
SHOWN = 20  # lines of a server's log
SHOWN_BYTES = 2**16


def check_programs(arms: Sequence[ArmSpec], folder: Path) -> None:
    """Raise UsageError for an arm whose server program is missing, before any other server gets a request. folder: in
    which commands run."""
    for arm in arms:
        if arm.served is not None and arm.served.command:
            _check_command(arm, shlex.split(arm.served.command)[0], folder)


def by_server(jobs: Sequence[Job]) -> list[list[Job]]:
    """Group jobs that run together: those without a server to start, and those of each server. Keeps the order of jobs,
    since the baseline's write what the others' read."""
    groups: dict[str, list[Job]] = {}
    for job in jobs:
        groups.setdefault(job.arm.served.command if job.arm.served else "", []).append(job)
    return list(groups.values())


def with_servers(
    jobs: Sequence[Job],
    folder: Path,
    stop: Callable[[], bool],
    answered: Callable[[Sequence[Job]], Iterator[JobResult | JobFailure]],
) -> Iterator[JobResult | JobFailure]:
    """Yield the results of `answered` for the jobs, group by group, each while its server runs. Ends early on `stop()`,
    and if the budget does not suffice; folder, errors: see `reached`."""
    for group in by_server(jobs):
        if stop():
            return
        with reached(group, folder, stop) as ready:
            for result in answered(ready):
                yield result
                if isinstance(result, JobFailure) and result.unpaid:  # nor would any other be
                    return


@contextmanager
def reached(jobs: Sequence[Job], folder: Path, stop: Callable[[], bool]) -> Iterator[list[Job]]:
    """Yield one group's jobs with the address of their server, as of `running`; no jobs if that has none."""
    first = jobs[0].arm
    with running(first, folder, stop) as arm:
        if arm is first:  # none is started, and the jobs may be of several arms
            yield list(jobs)
        else:
            yield [replace(job, arm=_at(job.arm, arm)) for job in jobs if arm is not None]


def _at(arm: ArmSpec, started: ArmSpec) -> ArmSpec:
    assert arm.served is not None, "of a group that is served"
    assert started.served is not None, "its server was started"
    return replace(arm, served=replace(arm.served, endpoint=started.served.endpoint))


@contextmanager
def running(arm: ArmSpec, folder: Path, stop: Callable[[], bool]) -> Iterator[ArmSpec | None]:
    """Yield the arm with the address of its server, which runs for the length of the block.

    folder: in which the command runs. UsageError if there is no such command, IntegrityError if the model files that it
    names changed since planning, InfrastructureError, with its last lines, for a server that ends or does not answer.
    None if `stop()` comes first.
    """
    if arm.served is None or not arm.served.command:
        yield arm
        return
    if arm.served.weights and weights_of(arm.served.command, folder) != arm.served.weights:
        raise IntegrityError(
            f"{arm.name}: the model files that `serve` names are not those that the run was planned with. Run again: "
            "as it is now, that is another run."
        )
    port = _free_port()
    command = [word.replace("{port}", str(port)) for word in shlex.split(arm.served.command)]
    _check_command(arm, command[0], folder)
    with tempfile.TemporaryDirectory(prefix="qualgate-server-") as temporary:
        log = Path(temporary) / "log"
        log.touch()
        started = subprocess.Popen(
            [sys.executable, "-I", keeper.__file__, str(log), *command],
            stdin=subprocess.PIPE,
            cwd=folder,
            start_new_session=True,  # Ctrl-C is the coordinator's: it stops cleanly, and then ends the server
        )
        assert started.stdin is not None, "asked for"
        try:
            answers = _wait(arm, port, started, log, stop)
            served = replace(arm.served, endpoint=f"http://127.0.0.1:{port}/v1")
            yield replace(arm, served=served) if answers else None
        finally:
            started.stdin.close()
            started.wait()


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def _check_command(arm: ArmSpec, program: str, folder: Path) -> None:
    """Raise UsageError if a serving command's program is not found. folder: where the command runs."""
    path = shutil.which(str(folder / program) if "/" in program else program)
    if path is None:
        message = f"{arm.name}: `serve` begins with {program!r:.80}, and there is no such program here."
        if "=" in program:  # as a shell takes it
            raise UsageError(f"{message} No shell reads it: variables are set by `env`, as in: env NAME=1 vllm serve …")
        raise UsageError(
            f"{message} Install it, activate its environment, or write its path, relative to the gate file."
        )


def _wait(arm: ArmSpec, port: int, started: subprocess.Popen[bytes], log: Path, stop: Callable[[], bool]) -> bool:
    """Wait until the server answers at its port; return False if `stop()` comes first.

    InfrastructureError, with the log's last lines, if it ends or has not answered in time.
    """
    deadline = time.monotonic() + START_SECONDS
    while not _answers(port):
        if stop():
            return False
        if started.poll() is not None:
            why = f"its server ended while it started, with code {started.returncode}"
        elif time.monotonic() > deadline:
            why = f"its server has not answered at port {port} for {START_SECONDS:g} s"
        else:
            time.sleep(POLL_SECONDS)
            continue
        raise InfrastructureError(f"{arm.name}: {why}. {_last_lines(log, arm)}")
    return True


def _answers(port: int) -> bool:
    """Return whether the server lists its models, and is healthy if it reports health."""
    try:
        return _status(port, "/health") in (200, 404, *KEYED) and _status(port, "/v1/models") in (200, *KEYED)
    except (OSError, HTTPException):  # a reply that cannot be read among them
        return False


def _status(port: int, path: str) -> int:
    asking = HTTPConnection("127.0.0.1", port, timeout=5.0)
    try:
        asking.request("GET", path)
        return asking.getresponse().status
    finally:
        asking.close()


def _last_lines(log: Path, arm: ArmSpec) -> str:
    """Return the log's last lines for people, without the arm's key, which a server may print from its environment."""
    with log.open("rb") as file:
        file.seek(max(0, log.stat().st_size - SHOWN_BYTES))
        text = file.read().decode("utf-8", "replace")
    if arm.served and (key := os.environ.get(arm.served.api_key_env, "").strip()):
        text = text.replace(key, "***")
    lines = text.splitlines()[-SHOWN:]
    if not lines:
        return "It wrote nothing."
    return "The last that it wrote:\n" + "\n".join(f"    {visible(line)[:300]}" for line in lines)
