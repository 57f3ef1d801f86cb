"""The JSON-Schema-Test-Suite put to `scoring.schema`: of the drafts whose files are at hand.

`JSON_SCHEMA_TEST_SUITE` names the suite's folder; the source distribution of jsonschema on PyPI has it as `json`.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from jsonschema.validators import validator_for

from qualgate.records.identity import canonical_json
from qualgate.scoring.schema import DIALECT, CannotValidate, first_error
from qualgate.scoring.schema.drafts import registry_of
from tests.verification.shared import DATA

DRAFTS = {
    "draft4": "http://json-schema.org/draft-04/schema#",
    "draft6": "http://json-schema.org/draft-06/schema#",
    "draft7": "http://json-schema.org/draft-07/schema#",
    "draft2019-09": "https://json-schema.org/draft/2019-09/schema",
    "draft2020-12": DIALECT,
}  # folder of the suite → `$schema`
PARTS = ("", "optional", "optional/format")
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


def whole_suite() -> dict[str, Any] | None:
    """Each part as `schema_suite` has it, with `silent`: tests that get no verdict, by file; and `library`: of the
    tests that differ, those in which jsonschema's own validator says what we say."""
    found: dict[str, Any] = {}
    for part in PARTS:
        if (one := schema_suite(part)) is None:
            return None
        found[part or "required"] = one
        silent = (place for place in one["differ"] if place.endswith(": no verdict"))
        one["silent"] = dict(Counter(place.split(" ", 1)[1].split(":")[0] for place in silent))
        one["library"] = sum(_library_agrees(draft, part, set(one["differ"])) for draft in DRAFTS)
    return found


def _library_agrees(draft: str, part: str, differ: set[str]) -> int:
    kind = validator_for({"$schema": DRAFTS[draft]})
    registry, same = registry_of(canonical_json(remotes(draft))), 0
    for place, schema, data, _ in _tests(draft, part):
        for said in (True, False):
            if f"{draft} {place}: {said}" not in differ:
                continue
            checker = kind.FORMAT_CHECKER if part.endswith("format") else None
            same += said is kind(schema, registry=registry, format_checker=checker).is_valid(data)
    return same


def _verdicts(draft: str, part: str) -> Iterator[tuple[str, bool, bool | None]]:
    """Of each test: where it stands, whether its value is valid, and whether we take it (None: no verdict)."""
    for place, schema, data, valid in _tests(draft, part):
        try:
            said = first_error(schema, data, remotes(draft), formats=part.endswith("format")) is None
        except CannotValidate:
            said = None
        yield place, valid, said


def _tests(draft: str, part: str) -> Iterator[tuple[str, Any, Any, bool]]:
    """Where it stands, schema, value, and whether that is valid."""
    for path in sorted((SUITE / "tests" / draft / part).glob("*.json")):
        for group in json.loads(path.read_text(encoding="utf-8")):
            schema = group["schema"]
            if isinstance(schema, dict) and (draft != "draft2020-12" or part):
                schema = {"$schema": DRAFTS[draft], **schema}
            for test in group["tests"]:
                yield f"{path.stem}: {group['description']}: {test['description']}", schema, test["data"], test["valid"]


@cache
def remotes(draft: str) -> dict[str, Any]:
    """What the suite serves at localhost:1234. A document that names no draft is of its folder's, or of the one under
    test."""
    found = {}
    for path in sorted((SUITE / "remotes").rglob("*.json")):
        place = path.relative_to(SUITE / "remotes")
        if not place.parts[0].startswith(("v1", "draft3")):
            named = DRAFTS.get(place.parts[0], DRAFTS[draft])
            document = json.loads(path.read_text(encoding="utf-8"))
            found[f"http://localhost:1234/{place.as_posix()}"] = {"$schema": named, **document}
    return found
