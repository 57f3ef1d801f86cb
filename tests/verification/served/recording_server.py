"""A server that answers by the question's name and notes, for each connection, what it sent and what was asked next."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

from tests.served.scripted import Server, as_json, as_stream, is_probe, sound, text_piece

Question = tuple[str, str]  # the model's name, and the prompt

RIGHT = {"m": 10, "v": 8}  # of ten questions, how many each model answers rightly


@dataclass
class Noted:
    """What was asked and sent so far. address: with /v1. asked: how often each question was.

    An answer is *received* once another request comes on the connection that it was sent on: the client takes the next
    question only after it has stored the answer. Until then it is *under way*, whether its last byte was sent or not,
    and may be asked again after a kill.
    """

    address: str = ""
    seconds: float = 0.0  # until it answers
    asked: Counter[Question] = field(default_factory=Counter)
    under_way: dict[Any, Question] = field(default_factory=dict)  # by connection's handler
    received: set[Question] = field(default_factory=set)
    again: list[Question] = field(default_factory=list)  # asked although received
    sent: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note_question(self, connection: Any, question: Question | None) -> None:
        """Note a request on a connection. question: None of one that is no case."""
        with self.lock:
            before = self.under_way.pop(connection, None)
            if before is not None:
                self.received.add(before)
            if question is not None:
                if question in self.received:
                    self.again.append(question)
                self.asked[question] += 1
                self.under_way[connection] = question


def answer_of(model: str, prompt: str) -> str:
    """The last word of the prompt, or "no"."""
    name = prompt.split()[-1]
    return name if int(name[1:]) % 10 < RIGHT[model] else "no"


@contextmanager
def recording(seconds: float) -> Iterator[Noted]:
    """A running one. seconds: until it answers."""
    noted = Noted(seconds=seconds)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        disable_nagle_algorithm = True

        def do_GET(self) -> None:
            noted.note_question(self, None)
            models = {"object": "list", "data": [{"id": name, "root": f"./{name}"} for name in RIGHT]}
            self._send(as_json(models if self.path == "/v1/models" else {"version": "1.0"}))

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            question = None if is_probe(body) else (body["model"], body["prompt"])
            noted.note_question(self, question)
            if question is None:
                self._send(sound(body))
                return
            time.sleep(noted.seconds)
            text = answer_of(*question)
            usage = {"prompt_tokens": 2, "completion_tokens": 1}
            streams = as_stream(text_piece(text), text_piece("", "stop"), {"choices": [], "usage": usage})
            self._send(streams if body.get("stream") else as_json({**text_piece(text, "stop"), "usage": usage}))
            with noted.lock:
                noted.sent += 1

        def _send(self, reply: Any) -> None:
            self.send_response(reply.status)
            self.send_header("Content-Type", reply.kind)
            self.send_header("Content-Length", str(len(reply.body)))
            self.end_headers()
            self.wfile.write(reply.body)

        def handle(self) -> None:
            try:
                super().handle()
            except OSError:  # whoever asked was killed
                self.close_connection = True

        def log_message(self, format: str, *args: Any) -> None: ...

    server = Server(("127.0.0.1", 0), Handler)
    noted.address = f"http://127.0.0.1:{server.server_address[1]}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    try:
        yield noted
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
