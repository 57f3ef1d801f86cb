"""A server on a real socket that answers as a test scripts it, and remembers what it was asked."""

from __future__ import annotations

import asyncio
import itertools
import json
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from qualgate.records import Served
from qualgate.served import probes as questions
from qualgate.served.answer import Answer
from qualgate.served.client import Client

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
    """address: with /v1. asked: (path, headers, body) of every request but probes, and those for models and the
    version. probes: what is answered to a probe."""

    address: str
    script: list[Reply]
    models: Reply
    version: Reply
    otherwise: Callable[[dict[str, Any]], Reply] | None
    probes: Callable[[dict[str, Any]], Reply]
    asked: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)
    probed: list[tuple[str, dict[str, str], Any]] = field(default_factory=list)  # the same of probes
    looked: list[dict[str, str]] = field(default_factory=list)  # headers of the others
    lock: threading.Lock = field(default_factory=threading.Lock)
    metrics: Reply | None = None  # its page of metrics; None: as its version


def is_probe(body: dict[str, Any]) -> bool:
    """Whether it is one of the questions that a server is asked before its cases."""
    text = body["messages"][-1]["content"] if "messages" in body else body.get("prompt")
    fixed = (*questions.FIXED, questions.OPEN, questions.COUNT, questions.ORDER, *questions.WORDED)
    return isinstance(text, str) and (text in fixed or text.startswith((questions.NEW, *questions.STARTS)))


def sound(body: dict[str, Any], **planted: Any) -> Reply:
    """What a server without a fault answers to a probe: it counts words as tokens. planted: faults of one that has some
    (`beyond` max_tokens, `greedy` at every temperature, `unsteady` at 0, `seedless`, `context`, `template`, `parser`
    off, `shift` of its log-probs, `stale` answers, `crossed` ones, `unstopped`)."""
    chat = "messages" in body
    text = body["messages"][-1]["content"] if chat else body["prompt"]
    read = min(len(text.split()) + planted.get("template", 0), planted.get("context", 10**9))
    usage = {"prompt_tokens": read, "completion_tokens": body["max_tokens"] + planted.get("beyond", 0)}
    if body.get("echo"):
        told = {"token_logprobs": [None, *(-1.5 + planted.get("shift", 0.0) for _ in text.split())]}
        return as_json({"choices": [{"index": 0, "text": text, "finish_reason": "length", "logprobs": told}]})
    drawn = body["temperature"] > 0 and not planted.get("greedy")
    said = f"drawn by {body['seed']}" if drawn else "the likeliest"
    if text in questions.WORDED and not planted.get("stale"):
        said = text[::-1]
        if planted.get("crossed") and next(COUNTED) % (3 * len(questions.WORDED)) < len(questions.WORDED):
            said = questions.WORDED[questions.WORDED.index(text) - 1][::-1]
    if body.get("stop") and not planted.get("unstopped"):
        said = said.partition(body["stop"][0])[0]
    if planted.get("seedless" if drawn else "unsteady"):
        said += f", {next(COUNTED)}"
    message: dict[str, Any] = {"role": "assistant", "content": said}
    if body.get("tools"):
        call = {"name": body["tools"][0]["function"]["name"], "arguments": '{"order": "A-17"}'}
        called = [{"index": 0, "id": "c", "type": "function", "function": call}]
        message = {"content": json.dumps(call)} if planted.get("parser") == "off" else {"tool_calls": called}
    choice = {"index": 0, "finish_reason": "length", **({"message": message} if chat else {"text": said})}
    return as_json({"choices": [choice], "usage": usage})


COUNTED = itertools.count()


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128  # of the 6th that comes at once the system would lose the first packet, and wait for 1 s


@contextmanager
def scripted(
    *script: Reply,
    models: Reply | None = None,
    version: Reply | None = None,
    otherwise: Callable[[dict[str, Any]], Reply] | None = None,
    probes: Callable[[dict[str, Any]], Reply] | None = None,
    secured: ssl.SSLContext | None = None,
) -> Iterator[Scripted]:
    """script: what is answered in turn; otherwise: what is answered behind its end, by the request's body."""
    found: Scripted

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True  # else a body waits 40 ms for the acknowledgement of its headers

        def do_GET(self) -> None:
            found.looked.append(dict(self.headers))
            metrics = found.metrics if self.path == "/metrics" else None
            is_list = self.path.partition("?")[0] == "/v1/models"
            self._send(found.models if is_list else metrics or found.version)

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if is_probe(body):
                with found.lock:
                    found.probed.append((self.path, dict(self.headers), body))
                self._send(found.probes(body))
                return
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

    httpd = Server(("127.0.0.1", 0), Handler)
    if secured is not None:
        httpd.socket = secured.wrap_socket(httpd.socket, server_side=True)
    found = Scripted(
        f"http{'s' if secured else ''}://127.0.0.1:{httpd.server_address[1]}/v1",
        list(script),
        models or as_json(MODELS),
        version or as_json({"version": "1.0"}),
        otherwise,
        probes or sound,
    )
    thread = threading.Thread(target=httpd.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield found
    finally:
        httpd.shutdown()
        httpd.server_close()
        thread.join()


def asking(server: Scripted, body: dict[str, Any] | None = None, **served: Any) -> tuple[Answer, list[float]]:
    """One answer of the server, and the seconds that the client would have waited on the way."""
    waited: list[float] = []

    async def sleep(seconds: float) -> None:
        waited.append(seconds)

    async def ask() -> Answer:
        async with Client("x", Served(endpoint=server.address, **served), 4, sleep=sleep) as client:
            return await client.ask("/completions", body or {"prompt": "p"})

    return asyncio.run(ask()), waited
