"""What hostile programs reach for, and what of it changed: a folder, listeners, processes, a secret everywhere."""

from __future__ import annotations

import os
import socket
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SECRET = "SECRET-OF-THE-HOST"


@dataclass(frozen=True, slots=True, kw_only=True)
class Ground:
    """What hostile programs reach for: a writable folder, listeners, this process, and a secret everywhere."""

    folder: str
    marker: str  # pid of this process - random - port


@contextmanager
def ground() -> Iterator[tuple[Ground, list[str]]]:
    """The ground, and a list that holds, after the with, everything that changed on it."""
    changed: list[str] = []
    descriptors = len(os.listdir("/proc/self/fd"))
    with (
        tempfile.TemporaryDirectory(prefix="qualgate-ground-") as folder,
        socket.socket(socket.AF_INET, socket.SOCK_STREAM) as tcp,
        socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as udp,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as path,
        socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as abstract,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as datagrams,
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as abstract_datagrams,
    ):
        tcp.bind(("127.0.0.1", 0))
        udp.bind(("127.0.0.1", tcp.getsockname()[1]))
        marker = f"{os.getpid()}-{uuid.uuid4().hex}-{tcp.getsockname()[1]}"
        path.bind(f"{folder}/socket")
        abstract.bind(f"\0{marker}")
        datagrams.bind(f"{folder}/datagrams")
        abstract_datagrams.bind(f"\0{marker}-datagrams")
        for listener in (tcp, path, abstract):
            listener.listen()
        canary = Path(folder, "canary")
        canary.write_text(SECRET)
        for changeable in (folder, canary, f"{folder}/socket", f"{folder}/datagrams"):
            os.chmod(changeable, 0o777)
        before = _tree(folder)
        os.environ["QUALGATE_CANARY"] = SECRET
        try:
            yield Ground(folder=folder, marker=marker), changed
        finally:
            del os.environ["QUALGATE_CANARY"]
            changed += ["S3: the host's files changed"] if _tree(folder) != before else []
            listeners = {"tcp": tcp, "udp": udp, "unix": path, "abstract": abstract}
            for name, listener in (listeners | {"datagrams": datagrams, "abstract 2": abstract_datagrams}).items():
                listener.setblocking(False)
                try:
                    listener.recv(1) if listener.type == socket.SOCK_DGRAM else listener.accept()
                    changed.append(f"S5: {name} was reached")
                except BlockingIOError:
                    pass
            changed += [f"S11: process {pid} is left" for pid in _marked(marker)]
    if len(os.listdir("/proc/self/fd")) > descriptors:  # fewer: something of before was collected meanwhile
        changed.append(f"descriptors: {descriptors} before, {len(os.listdir('/proc/self/fd'))} after")


def _tree(folder: str) -> list[tuple[str, int, int, int]]:
    paths = [folder, *(str(path) for path in sorted(Path(folder).rglob("*")))]
    return [(path, at.st_mode, at.st_size, at.st_mtime_ns) for path in paths for at in [os.lstat(path)]]


def _marked(marker: str) -> list[int]:
    found = []
    for name in os.listdir("/proc"):
        try:
            if (
                name.isdigit()
                and int(name) != os.getpid()
                and marker.encode() in Path("/proc", name, "cmdline").read_bytes()
            ):
                found.append(int(name))
        except OSError:
            continue
    return found
