"""Cases and outputs written to score."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from qualgate.pipeline.score_files import Scored, score_files
from qualgate.scoring import registry


def write(path: Path, rows: Sequence[dict | str]) -> None:
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))


def scored_files(
    folder: Path, cases: Sequence[dict | str], outputs: Sequence[dict | str], scorer: str, **how
) -> Scored:
    """Write cases and outputs, and score them."""
    files = folder / "cases.jsonl", folder / "outputs.jsonl"
    for path, rows in zip(files, (cases, outputs), strict=True):
        write(path, rows)
    return score_files(*files, registry.find(scorer), **how)
