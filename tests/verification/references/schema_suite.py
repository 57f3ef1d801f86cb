"""The JSON-Schema-Test-Suite put to `scoring.schema`."""

from __future__ import annotations

import json
from typing import Any

from qualgate.scoring.schema import DIALECT, CannotValidate, first_error
from tests.verification.shared import DATA


def schema_suite() -> dict[str, Any] | None:
    """The official suite's required part for draft 2020-12; None where its files are not."""
    files = sorted((DATA / "json_schema_test_suite" / "tests" / "draft2020-12").glob("*.json"))
    if not files:
        return None
    remotes, agree, tests, differ = _remotes(), 0, 0, set()
    for path in files:
        for group in json.loads(path.read_text(encoding="utf-8")):
            for test in group["tests"]:
                tests += 1
                try:
                    same = (first_error(group["schema"], test["data"], remotes) is None) is test["valid"]
                except CannotValidate:
                    same = False
                agree += same
                if not same:
                    differ.add(f"{path.stem}: {group['description']}")
    return {"tests": tests, "agree": agree, "differ": sorted(differ)}


def _remotes() -> dict[str, Any]:
    """What the suite serves at localhost:1234; a document that names no draft is of 2020-12."""
    folder, found = DATA / "json_schema_test_suite" / "remotes", {}
    for path in folder.rglob("*.json"):
        place = path.relative_to(folder).as_posix()
        if not place.startswith("draft") or place.startswith("draft2020-12/"):
            found[f"http://localhost:1234/{place}"] = {"$schema": DIALECT, **json.loads(path.read_text("utf-8"))}
    return found
