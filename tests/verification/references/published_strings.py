"""What vLLM's parsers and our `served` readings make of the strings that vLLM's own tests ask them.

    python -m tests.verification.references.published_strings INTERPRETER TESTS

INTERPRETER has vLLM; TESTS is its source's `tests/tool_parsers`. Nothing of either is kept here. A string is any that a
test file writes down, put together where it is from constants of the file, asked of the dialect that the file is about:
once with no tools, once with those that vLLM called then, their parameters of the types that their texts look like.
"""

from __future__ import annotations

import ast
import json
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from qualgate.scoring.tools.dialects import BadCall
from qualgate.scoring.tools.served import read_served
from qualgate.scoring.tools.served_parsers import PARSERS as SERVED
from tests.verification.references.agreement import ask_peer
from tests.verification.references.dialect_agreement import Calls, no_json, same_calls
from tests.verification.references.dialect_strings import PARSERS, WITHOUT

FILES = {name: f"test_{name}_tool_parser.py" for name in PARSERS} | {
    "deepseek_v3": "test_deepseekv3_tool_parser.py", "deepseek_v31": "test_deepseekv31_tool_parser.py",
    "deepseek_v32": "test_deepseekv32_tool_parser.py", "deepseek_v4": "test_deepseekv4_tool_parser.py",
    "ernie45": "test_ernie45_moe_tool_parser.py", "glm45": "test_glm4_moe_tool_parser.py",
    "glm47": "test_glm47_moe_tool_parser.py", "hunyuan_v3": "test_hy_v3_tool_parser.py",
    "minicpm5": "test_minicpm5xml_tool_parser.py", "phi4_mini": "test_phi4mini_tool_parser.py",
    "qwen25": "test_hermes_tool_parser.py", "qwen3_xml": "test_qwen3coder_tool_parser.py",
    "qwen3_coder": "test_qwen3coder_tool_parser.py", "nemotron_v3": "test_qwen3coder_tool_parser.py",
}  # fmt: skip
SHORTEST = 8  # characters of a string that may hold a call
MOST_SHOWN = 40


def strings(source: str) -> list[str]:
    """Those of a test file, each once: constants, sums and f-strings of these, names that stand for them."""
    tree = ast.parse(source)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=value) if (text := _text(value, known)) is not None:
                known[name] = text
    found = (_text(node, known) for node in ast.walk(tree) if isinstance(node, ast.expr))
    return [text for text in dict.fromkeys(found) if text and len(text) >= SHORTEST]


def _text(node: ast.expr | None, known: Mapping[str, str]) -> str | None:
    """What an expression writes; None where that is not known from the file."""
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.Name(id=name):
            return known.get(name)
        case ast.FormattedValue(value=value, conversion=-1, format_spec=None):
            return _text(value, known)
        case ast.JoinedStr(values=parts):
            return _joined([_text(part, known) for part in parts])
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _joined([_text(left, known), _text(right, known)])
    return None


def _joined(parts: Sequence[str | None]) -> str | None:
    return None if None in parts else "".join(part for part in parts if part is not None)


def tools_for(calls: Any) -> list[dict[str, Any]]:
    """Of the names and arguments that were called, each parameter of the type that its value or text looks like."""
    found: dict[str, dict[str, Any]] = {}
    for call in calls if isinstance(calls, list) else ():
        arguments = call["arguments"] if isinstance(call["arguments"], dict) else {}
        found.setdefault(call["name"], {}).update({key: {"type": _type(value)} for key, value in arguments.items()})
    return [
        {"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": properties}}}
        for name, properties in found.items()
    ]


def _type(value: Any) -> str:
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except ValueError:
            return "string"
    kinds = {bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
    return kinds.get(type(value), "string")


def asked(interpreter: str, rows: Sequence[tuple[str, str, list[dict[str, Any]]]]) -> tuple[str, list[Any]]:
    """vLLM's version, and what its parser of each dialect reads of each text with such tools."""
    questions = [
        {"parser": PARSERS[name], "text": text, "tools": tools, "without": WITHOUT.get(name, "")}
        for name, text, tools in rows
    ]
    return ask_peer(interpreter, "vllm_parsers.py", questions)


def compared(rows: Sequence[tuple[str, str, list[dict[str, Any]]]], found: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Of each row its dialect, and "" or how the two readings differ."""
    for (name, text, tools), read in zip(rows, found, strict=True):
        theirs: Calls = read if isinstance(read, list) else []
        try:
            ours = [{"name": call.name, "arguments": call.arguments} for call in read_served(text, name, tools)]
        except BadCall:
            ours = None
        same = ours is None if no_json(theirs) else same_calls(ours, theirs)
        yield name, "" if same else f"theirs {read!r:.300}\n  ours {ours!r:.300}\n  {text!r:.400}"


def main(interpreter: str, folder: Path) -> None:
    """Print a line a dialect, and what differs."""
    texts = [
        (name, text)
        for name, file in FILES.items()
        if name in SERVED and (folder / file).is_file()
        for text in strings((folder / file).read_text(encoding="utf-8"))
    ]
    plain = [(name, text, list[dict[str, Any]]()) for name, text in texts]
    version, first = asked(interpreter, plain)
    typed = [(*row, tools) for row, read in zip(texts, first, strict=True) if (tools := tools_for(read))]
    _, second = asked(interpreter, typed)
    counts, called, alike, shown = Counter[str](), Counter[str](), Counter[str](), 0
    for rows, found in ((plain, first), (typed, second)):
        for (name, why), read in zip(compared(rows, found), found, strict=True):
            counts[name] += 1
            called[name] += isinstance(read, list)
            alike[name] += not why
            if why and (shown := shown + 1) <= MOST_SHOWN:
                print(f"{name}: {why}")
    print(f"vLLM {version}: dialect, readings, of these with calls, alike")
    for name in counts:
        print(f"{name:16} {counts[name]:5} {called[name]:5} {alike[name]:5}")
    print(f"{'all':16} {counts.total():5} {called.total():5} {alike.total():5}")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
