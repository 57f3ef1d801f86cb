"""The JSON-Schema-Test-Suite put to `scoring.schema`: of the drafts whose files are at hand."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from qualgate.scoring.schema import DIALECT, CannotValidate, first_error
from tests.verification.shared import DATA

DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": DIALECT,
}  # folder of the suite → `$schema`
SUITE = Path(os.environ.get("JSON_SCHEMA_TEST_SUITE", DATA / "json_schema_test_suite"))


def schema_suite(part: str = "") -> dict[str, Any] | None:
    """Tests, those that agree, and which differ; None where no files are. part: a folder below a draft's: `optional`,
    or `optional/format`, whose formats are asserted; by default the required part."""
    tests, agree, differ = 0, 0, set()
    for draft in DRAFTS:
        for place, wanted, said in _verdicts(draft, part):
            tests, agree = tests + 1, agree + (said is wanted)
            if said is not wanted:
                differ.add(f"{draft} {place}: {'no verdict' if said is None else said}")
    return {"tests": tests, "agree": agree, "differ": sorted(differ)} if tests else None


def _verdicts(draft: str, part: str) -> Iterator[tuple[str, bool, bool | None]]:
    """Of each test: where it stands, whether its value is valid, and whether we take it (None: no verdict)."""
    for path in sorted((SUITE / "tests" / draft / part).glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            schema = group["schema"]
            if isinstance(schema, dict) and (draft != "draft2020-12" or part):
                schema = {"$schema": DRAFTS[draft], **schema}
            for test in group["tests"]:
                try:
                    error = first_error(schema, test["data"], remotes(draft), formats=part.endswith("format"))
                    said = error is None
                except CannotValidate:
                    said = None
                yield f"{path.stem}: {group['description']}: {test['description']}", test["valid"], said


@cache
def remotes(draft: str) -> dict[str, Any]:
    """What the suite serves at localhost:1234; a document that names no draft is of the one under test."""
    found = {}
    for path in (SUITE / "remotes").rglob("*.json"):
        place = path.relative_to(SUITE / "remotes").as_posix()
        if not place.startswith(("draft", "v1")) or place.startswith(draft + "/"):
            document = json.loads(path.read_text(encoding="utf-8"))
            found[f"http://localhost:1234/{place}"] = {"$schema": DRAFTS[draft], **document}
    return found
