"""A pooler that deals one server session out to the transactions of all its clients, as PgBouncer does in transaction
mode."""

from __future__ import annotations

import socket
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ENCRYPTED = (80877103, 80877104)  # a client asks for TLS or GSSAPI first


def _exactly(source: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        part = source.recv(count - len(got))
        if not part:
            raise EOFError
        got += part
    return got


def _message(source: socket.socket) -> tuple[bytes, bytes]:
    """Its kind, and all of it."""
    head = _exactly(source, 5)
    return head[:1], head + _exactly(source, struct.unpack("!I", head[1:])[0] - 4)


def _startup(client: socket.socket) -> bytes:
    while True:
        head = _exactly(client, 4)
        body = _exactly(client, struct.unpack("!I", head)[0] - 4)
        if struct.unpack("!I", body[:4])[0] not in ENCRYPTED:
            return head + body
        client.sendall(b"N")


class _Pooler(socketserver.ThreadingTCPServer):
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, place: Path) -> None:
        self.place, self.turn, self.session, self.greeting = place, threading.Lock(), None, b""
        super().__init__(("127.0.0.1", 0), _Client)

    def begin(self, startup: bytes) -> None:
        with self.turn:
            if self.session is not None:
                return
            self.session = socket.socket(socket.AF_UNIX)
            self.session.connect(str(self.place))
            self.session.sendall(startup)
            kind = b""
            while kind != b"Z":
                kind, whole = _message(self.session)
                self.greeting += whole


class _Client(socketserver.BaseRequestHandler):
    server: _Pooler

    def handle(self) -> None:
        """Until the client goes. What it sends at once is answered before more is read."""
        pool, client = self.server, self.request
        within = False
        try:
            pool.begin(_startup(client))
            client.sendall(pool.greeting)
            while (sent := client.recv(2**20)) and sent[:1] != b"X":
                if not within:
                    pool.turn.acquire()
                within = True
                pool.session.sendall(sent)
                kind = b""
                while kind != b"Z":
                    kind, whole = _message(pool.session)
                    client.sendall(whole)
                if whole[-1:] == b"I":
                    within = False
                    pool.turn.release()
        except (EOFError, OSError):
            pass
        finally:
            if within:
                pool.turn.release()


@contextmanager
def pooled(folder: Path) -> Iterator[int]:
    """The port before the server whose socket lies in `folder`."""
    with _Pooler(folder / ".s.PGSQL.5432") as pooler:
        threading.Thread(target=pooler.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
        yield pooler.server_address[1]
        pooler.shutdown()
