"""Cases and outputs written to score."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path


def write(path: Path, rows: Sequence[dict | str]) -> None:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
