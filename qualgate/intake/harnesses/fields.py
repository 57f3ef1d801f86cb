"""Read fields of untrusted JSON: what is of another kind counts as missing."""

from __future__ import annotations

import json
from typing import Any

from qualgate.records.identity import sha256_text


def mapping(value: Any) -> dict[str, Any]:
    """An object, {} for anything else."""
    return value if isinstance(value, dict) else {}


def sequence(value: Any) -> list[Any]:
    """A list, [] for anything else."""
    return value if isinstance(value, list) else []


def text(value: Any) -> str:
    """A text, "" for anything else."""
    return value if isinstance(value, str) else ""


def whole(value: Any) -> int | None:
    """A count from 0; None for anything else."""
    return value if type(value) is int and 0 <= value < 2**31 else None


def number(value: Any) -> float | None:
    """A number, true and false as 1 and 0; None for anything else."""
    return float(value) if isinstance(value, bool | int | float) else None


def shown(value: Any) -> str:
    """A value for one line of a message; a long one by its hash."""
    line = value if isinstance(value, str) else json.dumps(value, sort_keys=True, default=str)
    return line if len(line) <= 60 and "\n" not in line else sha256_text(line)[:12]
