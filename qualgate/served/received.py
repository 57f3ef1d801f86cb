"""Received answers of a job whose results are stored together, kept in a file until then.

A job that reads its answers further (`prompt_logprobs`) has results only at its end. If it is killed before, the same
requests are answered from the file when the run is resumed, so that none is paid for twice.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from qualgate.records import Job
from qualgate.records.identity import content_hash
from qualgate.served.answer import Answer

_ANSWERS = TypeAdapter(Answer)
Request = tuple[str, Mapping[str, Any]]  # path and body


class Received:
    """Answers in the file at `path`, by case and request; None: no answer is kept."""

    def __init__(self, path: Path | None = None) -> None:
        self._path, self._answers = path, dict[str, list[Answer]]()
        for key, answer in _lines(path) if path is not None and path.exists() else ():
            self._answers.setdefault(key, []).append(answer)

    def has(self, case: str, request: Request) -> bool:
        """Return whether an answer to the request is left."""
        return bool(self._answers) and bool(self._answers.get(_key(case, request)))

    def take(self, case: str, request: Request) -> Answer | None:
        """Return an answer to the request, each once and the first first; None if none is left."""
        return self._answers[_key(case, request)].pop(0) if self.has(case, request) else None

    def keep(self, case: str, request: Request, answer: Answer) -> None:
        """Append an answer to the file."""
        if self._path is None:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        # A line break before it too: a killed process may have left half a line.
        line = f"\n{json.dumps([_key(case, request), _ANSWERS.dump_python(answer)])}\n"
        file = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        try:
            os.write(file, line.encode())
        finally:
            os.close(file)

    def forget(self) -> None:
        """Delete the file: its answers do not count."""
        if self._path is not None:
            self._path.unlink(missing_ok=True)


def received_of(job: Job) -> Received:
    """Return what an earlier attempt at the job received; nothing for a job whose answers are stored one by one."""
    return Received(Path(f"{job.artifact}-{job.arm.name}.received.jsonl") if job.artifact else None)


def _key(case: str, request: Request) -> str:
    return content_hash([case, *request])


def _lines(path: Path) -> Iterator[tuple[str, Answer]]:
    """Yield key and answer of each line, except those that a kill or a full disk cut."""
    for line in path.read_text(encoding="utf-8", errors="replace").splitlines():
        try:
            key, answer = json.loads(line)
            yield str(key), _ANSWERS.validate_python(answer)
        except (ValueError, TypeError, ValidationError):
            continue
