"""What is made of a run's evidence before it is judged."""

from __future__ import annotations

from qualgate.pipeline.evidence import _read_elsewhere
from qualgate.records import UnitEvidence, UnitKey


def test_the_parser_is_blamed_by_the_dialect_that_the_case_declares():
    """A call in the declared dialect is not misread; in another one it is; where any would do, nothing is to blame."""
    call = '[TOOL_CALLS][{"name": "f", "arguments": {"a": 1}}]'
    unit = UnitEvidence(
        key=UnitKey("int4", "set", "a"),
        case_hash="h",
        status="done",
        values={"tool_call.valid": 0.0},
        scorers={},
        truncated=False,
        raw=call,
    )
    tools = [{"name": "f", "parameters": {"type": "object"}}]

    def misread(**body) -> str:
        return _read_elsewhere(unit, {"h": {"tools": tools, **body}}).misread

    assert misread(dialect="mistral") == ""
    assert misread(dialect="pythonic").startswith("mistral")
    assert misread(answer="a call").startswith("mistral")  # asked for in hermes
    assert misread(dialect="auto") == misread() == ""
