"""The way into a Ray cluster: reached, or given up in time and at once when a run is asked to stop.

Ray waits for minutes for what answers and is no Ray, and hears nobody meanwhile. So a process of its own tries the
address first: that one can be ended.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any

from qualgate.errors import InfrastructureError, UsageError, one_line
from qualgate.errors.extras import needs

log = logging.getLogger(__name__)

# Of a cluster that is started here. Ray's own niceness of 15 would have engines wait for all else on the machine.
RAY_HERE = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
REACH_SECONDS = 10  # in which a cluster's address is to take a connection
TRY_SECONDS = 120  # in which what took one is to have answered as Ray does
TELL_SECONDS = 10  # after which it is said that it has not yet
POLL_SECONDS = 0.2  # between two looks whether a stop was asked for
QUIET = {"log_to_driver": False, "configure_logging": False}
# Ends by itself, later, should nobody be left to end it. Why a connection failed is the last line of the error's cause.
_TRY = f"""
import signal, sys
signal.alarm({TRY_SECONDS + 30})
import ray
try:
    ray.init(address=sys.argv[1], logging_level="ERROR", **{QUIET})
except (Exception, SystemExit) as error:
    cause = str(error.__cause__ or "").strip().splitlines()
    print(" ".join(f"{{type(error).__name__}}: {{error}}".split()), *cause[-1:])
    sys.exit(1)
"""


def try_cluster(address: str) -> None:
    """Raise what `connect` would, at once: UsageError without Ray, InfrastructureError if nobody answers."""
    _imported()
    if (address := _meant(address)) not in ("", "auto"):
        _reach(address)


def _imported() -> Any:
    """Import Ray with the environment that this process needs. UsageError if it is not installed."""
    for name, value in RAY_HERE.items():
        os.environ.setdefault(name, value)
    try:
        import ray
    except ImportError:
        raise UsageError(needs("`workers: {backend: ray}`", "ray")) from None
    return ray


def _meant(address: str) -> str:
    return os.environ.get("RAY_ADDRESS", address) if address == "auto" else address


def connect(address: str) -> None:
    """Connect to a cluster.

    address: HOST:PORT, `auto` for the cluster this machine is a node of, "" to start one here. UsageError if Ray is
    missing here or of another version there, InfrastructureError for a cluster that is not reached.
    """
    ray = _imported()
    if (address := _meant(address)) not in ("", "auto"):
        _reach(address)
        _try(address)
    local = {"num_cpus": len(os.sched_getaffinity(0)), "include_dashboard": False, "object_store_memory": 256 * 2**20}
    stopped = False
    try:
        with _own_signals():
            ray.init(address=address or "local", logging_level=logging.ERROR, **QUIET, **({} if address else local))
    except SystemExit as error:  # what Ray makes of SIGTERM, and of a long wait
        stopped = not address or error.code == signal.SIGTERM
        if not stopped:
            raise _refused(address, one_line(error)) from None
    except (ConnectionError, RuntimeError) as error:
        raise _refused(address, one_line(error)) from None
    if stopped:
        signal.raise_signal(signal.SIGTERM)  # heard by whom it was meant for
        raise _stopped(address)


def _refused(address: str, error_text: str) -> InfrastructureError | UsageError:
    """Return our error for one of Ray's. error_text: "TypeName: message"."""
    kind, _, message = error_text.partition(": ")
    if kind == "RuntimeError" and "mismatch" in message:
        return UsageError(f"{message} Install the same versions on both.")
    if kind == "RuntimeError":
        return InfrastructureError(f"Ray at {address or 'this machine'}: {message}")
    why = "none runs on this machine" if address == "auto" else f"{address} answers, but not as Ray does ({error_text})"
    return InfrastructureError(
        f"no Ray cluster: {why}. `ray status` shows what runs; `ray start --head` starts one, and without "
        "`workers.address` the run starts its own."
    )


def _stopped(address: str) -> InfrastructureError:
    return InfrastructureError(f"stopped before Ray at {address or 'this machine'} was reached")


def _reach(address: str) -> None:
    """Try a plain connection first, the fastest sign that anybody is there."""
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host.strip("[]"), int(port)), REACH_SECONDS).close()
    except (OSError, ValueError) as error:
        raise InfrastructureError(
            f"no Ray cluster answers at {address} ({one_line(error)}). Start one there (`ray start --head "
            f"--port={port}`), correct `workers.address`, or leave it out: the run then starts one on this machine."
        ) from None


def _try(address: str) -> None:
    """Connect in a process of its own, and raise what fails."""
    began, warned = time.monotonic(), False
    command = [sys.executable, "-P", "-c", _TRY, address]
    # A session of its own: Ctrl-C is this process's to hear, from before that one begins.
    quiet = {"stdin": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    with _heard_signals() as heard, subprocess.Popen(command, stdout=subprocess.PIPE, text=True, **quiet) as tried:
        try:
            while tried.poll() is None:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    tried.wait(POLL_SECONDS)
                took = time.monotonic() - began
                if heard:
                    raise _stopped(address)
                if took > TRY_SECONDS:
                    raise _refused(address, f"no reply of Ray within {TRY_SECONDS} s")
                if took > TELL_SECONDS and not warned:
                    warned = True
                    log.warning("%s has not answered as Ray does yet; waiting for up to %d s", address, TRY_SECONDS)
        finally:
            tried.kill()
        output = tried.stdout.read() if tried.stdout else ""
    if tried.returncode:
        output = (output.strip().splitlines() or [f"who tried ended with {tried.returncode}"])[-1]
        raise _refused(address, output[:600])


@contextlib.contextmanager
def _heard_signals() -> Iterator[list[int]]:
    """Record stop signals in the block, after their own handlers."""
    heard: list[int] = []
    with _own_signals() as before:
        for number, handler in before.items():
            if callable(handler):

                def hear(number: int, frame: object, handler: Any = handler) -> None:
                    heard.append(number)
                    handler(number, frame)

                signal.signal(number, hear)
        yield heard


@contextlib.contextmanager
def _own_signals() -> Iterator[dict[signal.Signals, Any]]:
    """Restore the signal handlers after the block: Ray takes SIGTERM for itself, and a stop request would be lost."""
    if threading.current_thread() is not threading.main_thread():
        yield {}
        return
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield before
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
