"""Sets as people write them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest


@pytest.fixture
def write(tmp_path: Path):
    def write(cases: list[Any] | bytes, header: str = "metrics: [exact_match]", name: str = "mine") -> Path:
        lines = cases if isinstance(cases, bytes) else "".join(json.dumps(case) + "\n" for case in cases).encode()
        (tmp_path / f"{name}.jsonl").write_bytes(lines)
        path = tmp_path / f"{name}.yaml"
        path.write_text(header if "name:" in header else f"name: {name}\nversion: 1\n{header}\n")
        return path

    return write
