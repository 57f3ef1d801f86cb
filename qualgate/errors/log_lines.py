"""Write JSON lines for log collectors (`QUALGATE_LOG=json`).

A line is an object with `time`, `level` and `message`, and its subject if known: `event`, `run`, `arm`, `job`, `exit`.
Values of secrets in the environment are masked.
"""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime
from typing import Any, Literal

VARIABLE = "QUALGATE_LOG"
Level = Literal["info", "warning", "error"]
_under_way: dict[str, Any] = {}
_SECRET = re.compile("KEY|TOKEN|SECRET|PASS|CREDENTIAL|HEADERS|AUTH|HOOK|SLACK", re.IGNORECASE)
SHORTEST_SECRET = 8  # characters: shorter values occur in texts by chance


def is_json() -> bool:
    """Whether JSON lines are requested."""
    return os.environ.get(VARIABLE) == "json"


def all_are_about(**about: Any) -> None:
    """Set fields for all further lines of this process, such as the current run; without any, clear them."""
    _under_way.clear()
    _under_way.update({name: value for name, value in about.items() if value})


def log_line(message: str, level: Level = "info", **about: Any) -> str:
    """One line of ASCII without control characters. about: fields; those None or empty are left out."""
    fields = _under_way | {name: value for name, value in about.items() if value not in (None, "")}
    line = json.dumps(
        {"time": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%S.%fZ}", "level": level, "message": message, **fields}
    )
    for secret in _secrets():
        line = line.replace(json.dumps(secret)[1:-1], "…".encode("ascii", "backslashreplace").decode())
    return line


def _secrets() -> list[str]:
    """Values of variables named like secrets, the longest first: one may contain another."""
    named = (value for name, value in os.environ.items() if _SECRET.search(name))
    return sorted((value for value in named if len(value) >= SHORTEST_SECRET), key=len, reverse=True)
