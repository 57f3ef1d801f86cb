"""Generate the gate file's JSON Schema (draft 7, which editors read) from the loader's own types."""

from __future__ import annotations

from typing import Any

from qualgate.config.model import GateFileModel

DRAFT_7 = "http://json-schema.org/draft-07/schema#"


def gate_file_schema() -> dict[str, Any]:
    """The schema as plain JSON; `qualgate config schema` prints it."""
    return {"$schema": DRAFT_7, **_for_draft_7(GateFileModel.model_json_schema())}


def _for_draft_7(node: Any) -> Any:
    """Adapt a schema to draft 7, which ignores keys beside a `$ref`; drop null defaults: an optional key is not
    nullable."""
    if isinstance(node, list):
        return [_for_draft_7(item) for item in node]
    if not isinstance(node, dict):
        return node
    schema = {key: _for_draft_7(value) for key, value in node.items() if not (key == "default" and value is None)}
    if "$ref" in schema:
        return {"allOf": [{"$ref": schema.pop("$ref")}], **schema} if len(schema) > 1 else schema
    return schema
