"""Tables of what is read and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml


def rows_of(name: str) -> Any:
    """The rows of NAME.yaml in this folder; what its columns are stands at its top."""
    return yaml.safe_load((Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"))
