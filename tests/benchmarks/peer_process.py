"""A peer in a process of its own, which is stopped while it is not its turn."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from qualgate.records import Prompt
from tests.benchmarks.memory import descendants
from tests.benchmarks.race import Contender

TICKS = os.sysconf("SC_CLK_TCK")


class Down(Exception):
    """A peer does not come up, and what it said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Peer:
    """A running one. It says token ids."""

    version: str
    contender: Contender


@contextmanager
def running(name: str, command: Sequence[str], environment: Mapping[str, str], log: Path) -> Iterator[Peer]:
    """The process of `command`, named `name` in messages; what it writes to stderr goes to the file `log`.

    It writes a line "ready VERSION"; after that it reads kinds of prompts, a line each, and answers each with a line of
    JSON: the token ids of its answers. Down where it ends before it is ready.
    """
    with log.open("wb") as errors:
        child = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env={**environment}
        )
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            word, _, version = child.stdout.readline().strip().partition(" ")
            if word != "ready":
                raise Down(f"{name} did not come up: {log.read_text(errors='replace')[-800:]}")

            def answer(kind: str) -> list[tuple[int, ...]]:
                assert child.stdin is not None
                assert child.stdout is not None
                _signal(child.pid, signal.SIGCONT)
                print(kind, file=child.stdin, flush=True)
                line = child.stdout.readline()
                if not line:
                    raise RuntimeError(f"{name} ended: {log.read_text(errors='replace')[-800:]}")
                _signal(child.pid, signal.SIGSTOP)
                return [tuple(tokens) for tokens in json.loads(line)]

            _signal(child.pid, signal.SIGSTOP)  # out of turn it would poll, and take a core from the others
            yield Peer(version=version, contender=Contender(answer=answer, cpu=lambda: cpu_seconds(child.pid)))
        finally:
            _signal(child.pid, signal.SIGCONT)
            child.stdin.close()
            try:
                child.wait(timeout=60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def write_asked(file: Path, prompts: Mapping[str, Sequence[Prompt]]) -> Path:
    """The prompts as a peer's process reads them: {kind: [[token ids, most tokens to say], ...]}."""
    asked = {kind: [[one.token_ids, one.max_new_tokens] for one in mine] for kind, mine in prompts.items()}
    file.write_text(json.dumps(asked))
    return file


def longest(prompts: Mapping[str, Sequence[Prompt]]) -> int:
    """Tokens of the longest prompt with its answer."""
    return max(len(one.token_ids) + one.max_new_tokens for mine in prompts.values() for one in mine)


def _signal(root: int, what: signal.Signals) -> None:
    for pid in descendants(root):
        with suppress(ProcessLookupError):
            os.kill(pid, what)


def cpu_seconds(root: int) -> float:
    """Of a process and its descendants that live, in user and system mode."""
    total = 0
    for pid in descendants(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / TICKS
