"""Cases, sets and tables for the scorers' tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from qualgate.records import Case, Evalset, Score
from qualgate.scoring import score

LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # ten times as fast, where PyYAML was built with it


def scored(
    body: dict[str, Any], metrics: tuple[str, ...], text: str, finish_reason: str = "eos", **evalset: Any
) -> dict[str, Score]:
    """Every score of `text`, by metric."""
    case = Case(evalset="set", body={"id": "1", "max_new_tokens": 8, **body})
    found = score(case, Evalset(name="set", version="1", sha256="", metrics=metrics, **evalset), text, finish_reason)
    assert tuple(item.metric for item in found) == metrics
    return {item.metric: item for item in found}


def table(name: str) -> Any:
    """The rows of NAME.yaml in this folder; what its columns are stands at its top."""
    return yaml.load((Path(__file__).parent / f"{name}.yaml").read_text(encoding="utf-8"), LOADER)
