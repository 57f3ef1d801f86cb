"""A server on a real socket that answers as a test scripts it, and remembers what it was asked."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODELS = {"object": "list", "data": [{"id": "m", "root": "./m"}]}


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What is sent: status, headers, and the body's bytes. promised: its Content-Length, where that is a lie."""

    body: bytes = b""
    status: int = 200
    kind: str = "application/json"
    headers: dict[str, str] = field(default_factory=dict)
    promised: int | None = None


def as_json(value: Any, status: int = 200, **headers: str) -> Reply:
    return Reply(body=json.dumps(value).encode(), status=status, headers=headers)


def as_stream(*pieces: Any, done: bool = True) -> Reply:
    """Server-sent events; a text is sent as it stands."""
    lines = [piece if isinstance(piece, str) else json.dumps(piece) for piece in pieces]
    if done:
        lines.append("[DONE]")
    return Reply(body="".join(f"data: {line}\n\n" for line in lines).encode(), kind="text/event-stream")


def text_piece(text: str, reason: str | None = None, **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": reason, **more}]}


@dataclass
class Scripted:
    """address: with /v1. asked: (path, headers, body) of every request but those for models and the version."""

    address: str
    script: list[Reply]
    models: Reply
    version: Reply
    otherwise: Callable[[dict[str, Any]], Reply] | None
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    looked: list[dict[str, str]] = field(default_factory=list)  # headers of the others
    lock: threading.Lock = field(default_factory=threading.Lock)
    metrics: Reply | None = None  # its page of metrics; None: as its version


@contextmanager
def scripted(
    *script: Reply,
    models: Reply | None = None,
    version: Reply | None = None,
    otherwise: Callable[[dict[str, Any]], Reply] | None = None,
) -> Iterator[Scripted]:
    """script: what is answered in turn; otherwise: what is answered behind its end, by the request's body."""
    found: Scripted

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found.looked.append(dict(self.headers))
            metrics = found.metrics if self.path == "/metrics" else None
            self._send(found.models if self.path == "/v1/models" else metrics or found.version)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            with found.lock:
                found.asked.append((self.path, dict(self.headers), body))
                scripted_next = found.script.pop(0) if found.script else None
            if scripted_next is None:
                assert found.otherwise is not None, "asked more often than the test says"
                scripted_next = found.otherwise(body)
            self._send(scripted_next)

        def _send(self, reply: Reply) -> None:
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(reply.body) if reply.promised is None else reply.promised))
            for name, value in reply.headers.items():
                self.send_header(name.replace("_", "-"), value)
            self.end_headers()
            self.wfile.write(reply.body)
            if reply.promised is not None:
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None: ...

    httpd = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    httpd.daemon_threads = True
    found = Scripted(
        f"http://127.0.0.1:{httpd.server_address[1]}/v1",
        list(script),
        models or as_json(MODELS),
        version or as_json({"version": "1.0"}),
        otherwise,
    )
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()
