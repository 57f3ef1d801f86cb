"""What a node's child says: its last words as a reason, and its JSON lines handed on as the node's own."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualgate.errors.log_lines import is_json, read_line

LAST_WORDS = 120  # of what a child said, as the reason
ERROR = "qualgate: "  # begins the line that a command ends with
AT_ONCE = 2**20  # bytes that are read between two looks
_KEPT: dict[str, type] = {"time": str, "event": str, "run": str, "trace": str, "arm": str, "job": int, "exit": int}


@dataclass(slots=True)
class ChildLog:
    """A file that grows. say: takes a line, and by name what it is about."""

    path: Path
    say: Callable[..., None]
    run: str = ""  # that its lines were about last; "" where none was
    _read: int = 0  # bytes

    def relay(self) -> None:
        """Hand on the whole lines that came since, where lines are JSON. Only what a line of ours has is kept: a
        child's output holds what models and servers said."""
        if not is_json():
            return
        with contextlib.suppress(OSError), self.path.open("rb") as file:
            file.seek(self._read)
            new = file.read(AT_ONCE)
            whole = new[: new.rfind(b"\n") + 1] or (new if len(new) == AT_ONCE else b"")
            self._read += len(whole)
            for line in whole.decode("utf-8", "replace").splitlines():
                if (said := read_line(line)) is not None:
                    kept = _kept(said)
                    self.run = kept.get("run", self.run)
                    self.say(said["message"], level=_level(said), **kept)

    def last_words(self) -> str:
        """The error that the child ended with, from its beginning; where it told none, the end of what it said."""
        with contextlib.suppress(OSError):
            lines = self.path.read_bytes()[-8192:].decode("utf-8", "replace").splitlines()
            texts = [said["message"] if (said := read_line(line)) else line for line in lines]
            for at in reversed(range(len(texts))):
                if texts[at].startswith(ERROR):
                    return " ".join(" ".join(texts[at:]).removeprefix(ERROR).split()[:LAST_WORDS])
            return " ".join(" ".join(texts).split()[-LAST_WORDS:])
        return ""


def _level(said: dict[str, Any]) -> str:
    return said["level"] if said.get("level") in ("info", "warning", "error") else "info"


def _kept(said: dict[str, Any]) -> dict[str, Any]:
    return {name: said[name] for name, kind in _KEPT.items() if isinstance(said.get(name), kind)}
