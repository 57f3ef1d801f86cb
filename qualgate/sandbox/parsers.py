"""Run an inference server's own tool parsers on texts, in a child behind the wall.

The child is that server's Python environment: nothing of it is imported here, and it sees nothing but itself. It serves
the next text, too. A text at which it ends, or for which it takes too long, is tried once more in a fresh child, so
that results do not depend on earlier texts.
"""

from __future__ import annotations

import atexit
import functools
import os
import threading
from dataclasses import replace
from typing import Any

from qualgate.sandbox import tiers
from qualgate.sandbox.probe import probe
from qualgate.sandbox.process import Ended, Interpreter, Limits, SandboxFailed
from qualgate.sandbox.tiers import Tier

LOAD_SECONDS = 300.0  # such an environment is many gigabytes, perhaps read from a disk for the first time
TEXT_SECONDS = 10
MEMORY_BYTES = 4 * 2**30
# Addresses, not memory: libraries for accelerators take many of them. CPU time is counted over all texts, so wall time
# bounds each.
LIMITS = Limits(
    cpu_seconds=7 * 24 * 3600, wall_seconds=TEXT_SECONDS, memory_bytes=24 * 2**30, processes=64, open_files=256
)
ENCODINGS = "TIKTOKEN_ENCODINGS_BASE"  # openai_harmony's own variable: a folder with its vocabularies


class NoParsers(OSError):
    """An environment that cannot be used, and why."""


class Unread(Exception):
    """A text that the parser failed to read by its own fault."""


class _Child(Interpreter):
    """The environment's interpreter with its parsers imported."""

    def __init__(self, tier: Tier, engine: str, python: str) -> None:
        encodings = os.environ.get(ENCODINGS, "")
        environment = tiers.environment(python)
        if encodings:
            environment = replace(environment, readable=(*environment.readable, os.path.abspath(encodings)))
        super().__init__(tier, LIMITS, "parsers", runtime=environment)
        self._limits = replace(LIMITS, memory_bytes=MEMORY_BYTES)
        self._left = LOAD_SECONDS
        self.fresh = True
        try:
            reply = self.ask({"engine": engine, "encodings": encodings and os.path.abspath(encodings)})
        except BaseException:
            self.close()
            raise
        if "version" not in reply:
            self.close()
            raise NoParsers(f"{python} cannot import the parsers of {engine}: {reply.get('raised')}")
        self.version = str(reply["version"])

    def read(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the reply to one text, within the limits of one."""
        self._left, self.starved, self._output_size = float(TEXT_SECONDS), 0.0, 0
        self._output.clear()
        reply = self.ask(question)
        self.fresh = False
        return reply


class Parsers:
    """The parsers of one environment. version: its server's own."""

    def __init__(self, engine: str, python: str) -> None:
        """Start the parsers. NoParsers if they cannot be used here."""
        self._engine, self._python = engine, python
        self._turn = threading.Lock()
        self._child: _Child | None = None
        atexit.register(self.close)
        with self._turn:
            self.version = self._started().version

    def read(self, parser: str, text: str, tools: list[Any], lacks: str = "") -> tuple[tuple[str, str], ...]:
        """Return name and arguments (as text) of each call that the server executes. lacks: a token that the model's
        tokenizer lacks. Unread if its parser raises or ends; NoParsers if the environment no longer starts."""
        question = {"parser": parser, "text": text, "tools": tools, "lacks": lacks}
        with self._turn:
            reply = self._reply(question)
        calls = reply.get("calls")
        if not isinstance(calls, list):
            raise Unread(f"its parser fails: {reply.get('raised')}")
        try:
            return tuple((str(name), str(arguments)) for name, arguments in calls)
        except (TypeError, ValueError):
            raise Unread("its parser gives no calls") from None

    def _reply(self, question: dict[str, Any]) -> dict[str, Any]:
        """Return the parser's reply, from a new child if the running one ends on it. Unread if a fresh one does."""
        while True:
            child = self._started()
            try:
                return child.read(question)
            except Ended as ended:
                self.close()
                if child.fresh:
                    raise Unread(f"its parser does not end well on this text: {ended}") from None

    def _started(self) -> _Child:
        """Return the running child, started if need be. NoParsers if it cannot be."""
        if self._child is None:
            if (tier := probe().tier) is None:
                raise NoParsers("no sandbox holds on this machine: qualgate doctor")
            try:
                self._child = _Child(tier, self._engine, self._python)
            except NoParsers:
                raise
            except (Ended, SandboxFailed, OSError) as error:
                raise NoParsers(f"{self._python} does not start in the sandbox: {error}") from None
        return self._child

    def close(self) -> None:
        """End the child; the next text starts another."""
        if self._child is not None:
            self._child.close()
            self._child = None


def parsers_of(engine: str, python: str) -> Parsers:
    """Return the parsers of an environment, started once per process. NoParsers if they cannot be used here."""
    return _of_process(engine, python, os.getpid())


@functools.cache
def _of_process(engine: str, python: str, process: int) -> Parsers:
    return Parsers(engine, python)
