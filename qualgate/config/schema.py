"""The gate file's JSON Schema (draft 7, which editors read), generated from the loader's own types."""

from __future__ import annotations

from typing import Any

from qualgate.config.model import GateFileModel

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def gate_file_schema() -> dict[str, Any]:
    """The schema as plain JSON; `qualgate config schema` prints it."""
    return {"$schema": DRAFT_7, **_for_draft_7(GateFileModel.model_json_schema())}


def _for_draft_7(node: Any) -> Any:
    """Draft 7 ignores what stands beside a `$ref`, and a key that may be left out is not one that may be null."""
    if isinstance(node, list):
        return [_for_draft_7(item) for item in node]
    if not isinstance(node, dict):
        return node
    kept = {key: _for_draft_7(value) for key, value in node.items() if not (key == "default" and value is None)}
    if "$ref" in kept:
        return {"allOf": [{"$ref": kept.pop("$ref")}], **kept} if len(kept) > 1 else kept
    return kept
