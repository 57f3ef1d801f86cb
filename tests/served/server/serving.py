"""qualgate's engine behind OpenAI's API on a real socket, in a thread of the test's process."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from qualgate.engine.load import load_arm
from qualgate.records import ArmSpec
from tests.served.server.answering import Answering
from tests.served.server.app import server


@contextmanager
def serving(folder: Path, name: str, cache: Path, /, **arm: Any) -> Iterator[tuple[str, Answering]]:
    """Its address, with /v1, and what answers behind it. arm: fields of the arm that do not go without saying."""
    spec = ArmSpec(**{"name": "served", "model": str(folder), "dtype": "float32"} | arm)
    arm = load_arm(spec, cache, {}, device="cpu")
    with socket.socket() as listening, Answering(arm) as answering:
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        running = server(answering, name)
        thread = threading.Thread(target=running.run, kwargs={"sockets": [listening]})
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}/v1", answering
        finally:
            running.should_exit = True
            thread.join()
