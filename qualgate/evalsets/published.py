"""Convert published rows of LiveCodeBench and EvalPlus to rows that `own_rows` reads.

Later releases of LiveCodeBench store their private tests as a compressed, pickled text. No pickle is loaded: only
operations that build one text are interpreted, and any other is refused.
"""

from __future__ import annotations

import base64
import binascii
import json
import pickletools
import zlib
from collections.abc import Mapping
from typing import Any

from qualgate.documents import quote

MOST = 2**26  # characters of a row's private tests
_ONE_TEXT = {"PROTO", "FRAME", "SHORT_BINUNICODE", "BINUNICODE", "BINUNICODE8", "MEMOIZE", "BINPUT", "STOP"}
_STARS = (
    "string", "re", "datetime", "collections", "heapq", "bisect", "copy", "math", "random", "statistics", "itertools",
    "functools", "operator", "io", "sys", "json", "builtins", "typing",
)  # fmt: skip
# What LiveCodeBench runs before every answer (`import_string` of its testing_util), in its order.
PRELUDE = "".join(f"from {name} import *\n" for name in _STARS) + (
    f"import {', '.join(name for name in _STARS if name not in ('builtins', 'typing'))}\nsys.setrecursionlimit(50000)\n"
)
_ALONE = "Answer with the Python program alone, without a code fence."


class NotAsPublished(Exception):
    """A row with the keys of a benchmark but another form; the message is for the user."""


def as_own(row: Mapping[str, Any], chat: bool) -> Mapping[str, Any]:
    """Convert the row of a known benchmark to our keys; return any other as it is. chat: the answer is a whole
    program."""
    if {"question_content", "public_test_cases"} <= row.keys():
        return _live_code_bench(row)
    if {"canonical_solution", "base_input", "entry_point"} <= row.keys():
        return _evalplus(row, chat)
    return row


def _evalplus(row: Mapping[str, Any], chat: bool) -> dict[str, Any]:
    prompt, solution = row.get("prompt"), row["canonical_solution"]
    if not isinstance(prompt, str) or not isinstance(solution, str):
        raise NotAsPublished("a row of EvalPlus has the texts `prompt` and `canonical_solution`")
    fields = {key: row[key] for key in ("base_input", "plus_input", "atol", "task_id", "entry_point") if key in row}
    question = f"{prompt.rstrip()}\n\n{_ALONE} It defines {row['entry_point']}." if chat else prompt
    return {"id": row.get("task_id"), "prompt": question, "canonical_solution": prompt + solution, **fields}


def _live_code_bench(row: Mapping[str, Any]) -> dict[str, Any]:
    """Convert a row of LiveCodeBench to a case with a question, tests and tags."""
    about = _json(row.get("metadata") or "{}", "metadata")
    name = about.get("func_name") if isinstance(about, dict) else None
    tests = [*_tests(row["public_test_cases"], "public_test_cases", name),
             *_tests(_unpacked(row.get("private_test_cases") or "[]"), "private_test_cases", name)]  # fmt: skip
    starter = str(row.get("starter_code") or "").strip("\n")
    does = f"Begin with this code:\n{starter}" if starter else "Read standard input, and print to standard output."
    converted = {
        "id": str(row.get("question_id") or ""),
        "question": f"{str(row['question_content']).rstrip()}\n\n{does}\n\n{_ALONE}",
        "tests": tests,
        "prelude": PRELUDE,
        "tags": [str(row[key]) for key in ("platform", "difficulty") if row.get(key)],
    }
    return converted | ({"fn_name": name} if name else {})


def _tests(written: Any, key: str, name: str | None) -> list[dict[str, Any]]:
    """Read the tests of one row. written: a list, or its JSON text. key: for messages. name: of the function to call.

    Without a name, tests give standard input and expect output.
    """
    tests = _json(written, key) if isinstance(written, str) else written
    if not isinstance(tests, list) or not all(
        isinstance(test, dict) and isinstance(test.get("input"), str) and isinstance(test.get("output"), str)
        for test in tests
    ):
        raise NotAsPublished(f"`{key}` must be a list of tests with the texts `input` and `output`")
    if not name:
        return [{"stdin": test["input"], "stdout": test["output"]} for test in tests]
    return [
        {"args": [_json(line, key) for line in test["input"].split("\n")], "returns": _json(test["output"], key)}
        for test in tests
    ]


def _json(text: str, key: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NotAsPublished(f"`{key}` is not valid JSON ({error}): {quote(text)}") from None


def _unpacked(written: Any) -> Any:
    """Return the private tests as JSON text, whatever a release's encoding.

    A packed text is a pickle. It is never loaded, as it could run anything: the single text in it is read from its
    opcodes.
    """
    if not isinstance(written, str) or written.lstrip()[:1] in ("[", ""):
        return written
    try:
        unpacker = zlib.decompressobj()
        pickled = unpacker.decompress(base64.b64decode(written, validate=True), MOST)
        if unpacker.unconsumed_tail:
            raise NotAsPublished(f"`private_test_cases` unpacks to more than {MOST} bytes: leave the row out")
        operations = list(pickletools.genops(pickled))
    except (binascii.Error, zlib.error, ValueError, RecursionError) as error:
        raise NotAsPublished(f"`private_test_cases` is neither JSON nor a compressed text: {error}") from None
    texts = [value for operation, value, _ in operations if "UNICODE" in operation.name]
    others = sorted({operation.name for operation, _, _ in operations} - _ONE_TEXT)
    if others or len(texts) != 1:
        raise NotAsPublished(
            f"`private_test_cases` is a pickle of more than one text ({', '.join(others[:3]) or len(texts)}), which is "
            "never loaded, because it could run code"
        )
    return texts[0]
