"""Run one server and end it: a separate program that uses only the standard library, started by its path.

It starts the command in its own process group and waits. When its standard input closes, as it does when the parent
process ends in any way, it terminates the whole group, and kills it if need be. Its exit code is the server's.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading

GRACE = 10.0  # s between asking a server to end and killing it


def main() -> int:
    """Run the server. Arguments: its log, then its command."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    log, *command = sys.argv[1:]
    with open(log, "ab", buffering=0) as log_file:
        server = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=log_file, stderr=log_file, start_new_session=True
        )
    threading.Thread(target=_end_with_input, args=(server,), daemon=True).start()
    code = server.wait()
    _signal(server, signal.SIGKILL)  # what it left of its group
    return code if code >= 0 else 128 - code


def _end_with_input(server: subprocess.Popen[bytes]) -> None:
    """End the server once the standard input is closed, which is when the parent process has ended."""
    while os.read(sys.stdin.fileno(), 1024):  # no buffer: its lock would be held when the program ends
        pass
    _signal(server, signal.SIGTERM)
    try:
        server.wait(GRACE)
    except subprocess.TimeoutExpired:
        _signal(server, signal.SIGKILL)


def _signal(server: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):  # no one is left of it
        os.killpg(server.pid, number)


if __name__ == "__main__":
    sys.exit(main())
