"""What one row of the table of decisions measured, before it is one of the table."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """`rounds`: one entry for each cell or policy. `met` None: the goal is not of these cells alone."""

    id: str
    measured: Any
    spread: Any
    met: bool | None
    rounds: list[dict[str, Any]]
