"""Read files of one JSON object per line strictly: report every bad line, and still read the others."""

from __future__ import annotations

import hashlib
import json
from codecs import BOM_UTF8
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from qualgate.errors.misplaced import not_json_lines
from qualgate.scoring import strict_json
from qualgate.scoring.outcome import one_line


class JsonLines:
    """The objects of `path`, each with its line. Once iterated, `faults` (line, message) and `sha256` are complete.

    A byte-order mark and blank lines at the end are ignored; a blank line before others is a fault.
    max_line: bytes. said_by_model: allow lone surrogates and NULs, which may be part of an answer to be scored.
    OSError if the file cannot be read.
    """

    def __init__(self, path: Path, max_line: int, *, said_by_model: bool = False) -> None:
        self.path, self.max_line, self.said_by_model = path, max_line, said_by_model
        self.line = 0  # of the object handed out last; in the end how many there are
        self.faults: list[tuple[int, str]] = []
        self._digest = hashlib.sha256()

    @property
    def sha256(self) -> str:
        """Return the hash of the file's bytes read so far, in hexadecimal."""
        return self._digest.hexdigest()

    def fault(self, message: str) -> None:
        """Record a fault of the line that was handed out last."""
        self.faults.append((self.line, one_line(message)))

    def __iter__(self) -> Iterator[dict[str, Any]]:
        blank: list[int] = []  # lines, not yet known to be the last
        with self.path.open("rb") as file:
            for raw in self._raw_lines(file):
                if self.line == 1 and (why := not_json_lines(self.path, raw)):
                    self.fault(why)
                    for _ in self._raw_lines(file):  # no line of it is an object, and the hash is of all of it
                        pass
                    return
                if self.line == 1:
                    raw = raw.removeprefix(BOM_UTF8)
                if not raw.strip():
                    blank.append(self.line)
                    continue
                self.faults += [(line, "an empty line") for line in blank]
                blank.clear()
                if (body := self._body(raw)) is not None:
                    yield body
        if 1 in blank:  # and so all are
            self.faults.append((1, "an empty line"))

    def _raw_lines(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield each line of a file with its line end. A line longer than `max_line` is a fault, and is skipped."""
        while raw := file.readline(self.max_line + 1):
            self.line += 1
            self._digest.update(raw)
            if len(raw) <= self.max_line:
                yield raw
                continue
            array = not_json_lines(self.path, raw[:8]) if self.line == 1 else ""
            self.fault(array or f"a line of more than {self.max_line // 2**20} MiB")
            while not raw.endswith(b"\n") and (raw := file.readline(self.max_line)):
                self._digest.update(raw)

    def _body(self, raw: bytes) -> dict[str, Any] | None:
        """Return the JSON object of one line; None, after reporting the fault, for a line that holds none."""
        try:
            text = raw.decode("utf-8")
        except UnicodeDecodeError as error:
            return self.fault(f"not valid UTF-8 at byte {error.start + 1} of the line")
        if text.startswith("\ufeff"):
            return self.fault("a byte-order mark; only a file's first line may begin with one")
        try:
            body = strict_json.read(text, self.max_line)
        except strict_json.NotStrictJson as error:
            if error.error_type != "lone_surrogate" or not self.said_by_model:
                return self.fault(f"not a JSON object: {error}")
            body = json.loads(text)  # the strict reader looks for half characters last: all else is fine
        if not isinstance(body, dict):
            return self.fault("not a JSON object")
        if not self.said_by_model and ("\0" in text or "\\u0000" in text):
            return self.fault("a NUL character, which no database takes")
        return body
