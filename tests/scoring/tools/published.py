"""Answers as each dialect's published template or parser has a model write them."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from qualgate.scoring.tools.dialects import BadCall, Call
from qualgate.scoring.tools.dialects.registry import dialect
from tests.scoring.cases import table


class Published(NamedTuple):
    """A row of `published.yaml`, which says what its fields are."""

    source: str
    one: str
    two: str
    template: str = ""


PUBLISHED = {name: Published(**row) for name, row in table("tools/published").items()}
SAME = {  # dialects that write as another does
    "qwen25": "hermes", "granite4": "hermes", "ernie45": "hermes", "qwen3_xml": "qwen3_coder", "step5": "qwen3_coder",
    "nemotron_v3": "qwen3_coder", "step3p5": "qwen3_coder", "ling3": "glm47", "poolside_v1": "glm47",
}  # fmt: skip
ANSWERS = {name: PUBLISHED[SAME.get(name, name)] for name in (*PUBLISHED, *SAME)}

PROPERTIES = {
    "city": {"type": "string"},
    "days": {"type": "integer"},
    "metric": {"type": "boolean"},
    "near": {"anyOf": [{"type": "array"}, {"type": "null"}]},
}
PARAMETERS = {"type": "object", "properties": PROPERTIES}
TOOLS = [{"type": "function", "function": {"name": "get_weather", "parameters": PARAMETERS}}, {"name": "ping"}]
ARGUMENTS = {"city": 'São "Paulo"', "days": 3, "metric": True, "near": [1.5, {"k": None}]}
WEATHER, PING = Call("get_weather", ARGUMENTS), Call("ping", {})
JSON = r'{"city": "São \"Paulo\"", "days": 3, "metric": true, "near": [1.5, {"k": null}]}'
CALL = f'{{"name": "get_weather", "arguments": {JSON}}}'
LLAMA = f'{{"name": "get_weather", "parameters": {JSON}}}'
NO_ARGUMENTS = '{"name": "ping", "arguments": {}}'


def fault(name: str, text: str, tools: Any = TOOLS) -> str:
    """The word for what is wrong with an answer that the dialect refuses."""
    with pytest.raises(BadCall) as caught:
        dialect(name).parse(text, tools)
    return caught.value.error_type
