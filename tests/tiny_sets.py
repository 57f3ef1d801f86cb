"""Evalsets and calibration sets of a few short cases, as a user's files would be."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

CALIBRATION = "kind: calibration"


def write_set(folder: Path, name: str, texts: Sequence[str], header: str = "metrics: [exact_match]") -> str:
    """NAME.yaml and NAME.jsonl with a case a text; returns the path of NAME.yaml."""
    cases = [
        {"id": f"{name}-{index}", "prompt": text, "answer": "Yes.", "max_new_tokens": 4}
        for index, text in enumerate(texts)
    ]
    (folder / f"{name}.jsonl").write_text("".join(json.dumps(case) + "\n" for case in cases))
    (folder / f"{name}.yaml").write_text(f"name: {name}\nversion: 1\n{header}\n")
    return str(folder / f"{name}.yaml")
