"""The dashboard as `qualgate dashboard` starts it, on a free port."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@contextmanager
def started(
    store: str, *options: str, base_path: str = "", port: int = 0
) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """Its address, once it answers, and the command's process. options: of the command, besides its store and port."""
    port = port or free_port()
    options += ("--base-path", base_path) if base_path else ()
    command = subprocess.Popen(
        [sys.executable, "-m", "qualgate", "dashboard", "--store", store, "--port", str(port), *options],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}{base_path}/_stcore/health", command)
        yield f"http://127.0.0.1:{port}{base_path}", command
    finally:
        command.kill()
        command.wait()


def answers(url: str) -> bool:
    """Whether a server is there."""
    try:
        with urllib.request.urlopen(f"{url}/_stcore/health", timeout=5):
            return True
    except OSError:
        return False


def _wait_for(url: str, command: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except OSError:
            assert command.poll() is None, "the command ended while its server was starting"
    raise TimeoutError(f"{url} did not answer")
