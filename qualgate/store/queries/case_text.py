"""The question and the reference of a case as text."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any


def prompt_text(body: Mapping[str, Any]) -> str:
    """The case's question: its prompt, or its messages turn by turn and its tools."""
    if "prompt" in body:
        return str(body["prompt"])
    turns = [f"{turn.get('role', '')}: {turn.get('content', '')}" for turn in body.get("messages", ())]
    tools = [f"tool: {json.dumps(tool.get('function', tool), ensure_ascii=False)}" for tool in body.get("tools", ())]
    return "\n\n".join([*turns, *tools])


def reference_text(body: Mapping[str, Any]) -> str:
    """The case's reference: its `answer`, else the keys that its scorers read."""
    if "answer" in body:
        return str(body["answer"])
    references = {
        name: body[name]
        for name in ("references", "contains", "pattern", "expected_calls", "schema", "tests")
        if name in body
    }
    return json.dumps(references, indent=2, ensure_ascii=False) if references else ""
