"""MaskBench's schemas and labelled values put to `scoring.schema`, formats asserted.

`MASKBENCH` names its folder of data (`maskbench/data` of guidance-ai/jsonschemabench, MIT): a JSON file each with
`schema` and `tests`, each of these with `data` and `valid`.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from qualgate.scoring.schema import CannotValidate, first_error, lint
from tests.verification.shared import DATA

FOLDER = Path(os.environ.get("MASKBENCH", DATA / "maskbench"))
OF_A_DRAFT = "is no draft that is read"


def maskbench(every: int = 1) -> dict[str, Any] | None:
    """Schemas, those refused and why, labelled values, and those judged as labelled; None where no files are.
    every: one of so many files."""
    paths = sorted(FOLDER.glob("*.json"))[::every]
    return judged((path.stem, json.loads(path.read_text(encoding="utf-8"))) for path in paths) if paths else None


def judged(files: Iterable[tuple[str, dict[str, Any]]]) -> dict[str, Any]:
    """Of each file's name and content."""
    schemas, tests, met, refused, differ = 0, 0, 0, {}, []
    for name, content in files:
        schemas += 1
        if faults := lint(content["schema"], formats=True):
            refused[name] = faults[0]
            continue
        for place, test in enumerate(content.get("tests", ())):
            tests += 1
            try:
                said = first_error(content["schema"], test["data"], formats=True) is None
            except CannotValidate as why:
                said = str(why)
            met += said is test["valid"]
            if said is not test["valid"]:
                differ.append(f"{name}[{place}]: labelled {test['valid']}, {said}")
    of_a_draft = sum(OF_A_DRAFT in why for why in refused.values())
    return {"schemas": schemas, "refused": refused, "of_a_draft": of_a_draft, "tests": tests, "met": met,
            "differ": differ}  # fmt: skip
