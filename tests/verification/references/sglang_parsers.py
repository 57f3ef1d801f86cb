"""What SGLang's tool-call parsers read of texts. Run by an interpreter that has SGLang and nothing of ours:

    INTERPRETER sglang_parsers.py < questions > answers

A question is a JSON line {parser, text, tools}; an answer is SGLang's version in the first line, then a line for each:
[whole, pieces], what is read of the finished text and of its pieces one after another. Either is a list of {name,
arguments}, null where no tool is called, or {"raised": …}.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import logging
import os
import re
import sys
from collections.abc import Callable
from typing import Any


def whole(parser: Any, text: str) -> Any:
    """As its server does, which asks first whether there is a call."""
    _, calls = parser.parse_non_stream(text) if parser.has_tool_call(text) else ("", [])
    return [_call(call.name, call.parameters) for call in calls] or None


def pieces(parser: Any, text: str) -> Any:
    """Names and arguments by the index that each piece of a call carries, and at the end what is left of the last one's
    arguments, as its server sends them. A tag comes whole, as models write one token, everything else by characters."""
    found: dict[int, list[str]] = {}
    for piece in re.findall(r"<[^<>\s]{1,40}>|.", text, re.DOTALL):
        _collect(found, parser.parse_stream_chunk(piece)[1])
    _collect(found, parser.parse_stream_end()[1])
    known, sent = parser.detector.prev_tool_call_arr, parser.detector.streamed_args_for_tool
    if known and 0 < len(known) <= len(sent):
        given = known[-1].get("arguments", {})
        given = given if isinstance(given, str) else json.dumps(given, ensure_ascii=False)
        if given.startswith(sent[len(known) - 1]):
            found.setdefault(len(known) - 1, ["", ""])[1] += given[len(sent[len(known) - 1]) :]
    return [_call(name, given or "{}") for name, given in found.values()] or None


def _collect(found: dict[int, list[str]], calls: list[Any]) -> None:
    for call in calls:
        one = found.setdefault(call.tool_index, ["", ""])
        one[0] += call.name or ""
        one[1] += call.parameters or ""


def _call(name: str | None, parameters: str) -> dict[str, Any]:
    try:
        arguments = json.loads(parameters)
    except ValueError:
        arguments = {"no JSON": parameters}
    return {"name": name, "arguments": arguments}


def answer(parsers: Any, tools: list[Any], question: dict[str, Any], read: Callable[[Any, str], Any]) -> Any:
    try:
        return read(parsers.FunctionCallParser(tools, question["parser"]), question["text"])
    except Exception as error:  # theirs, so anything
        return {"raised": f"{type(error).__name__}: {error}"[:200]}


def main() -> None:
    logging.disable(logging.CRITICAL)
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what SGLang prints is no answer
    parsers = importlib.import_module("sglang.srt.function_call.function_call_parser")
    rewrite = importlib.import_module("sglang.srt.function_call.utils").normalize_json_schema_types
    tool = importlib.import_module("sglang.srt.entrypoints.openai.protocol").Tool
    print(json.dumps(importlib.metadata.version("sglang")), file=answers)
    for line in sys.stdin:
        question = json.loads(line)
        tools = [tool(**one) for one in question["tools"]]
        for one in tools:  # as its server does before anything else
            rewrite(one.function.parameters)
        found = [answer(parsers, tools, question, read) for read in (whole, pieces)]
        print(json.dumps(found, ensure_ascii=False), file=answers, flush=True)


if __name__ == "__main__":
    main()
