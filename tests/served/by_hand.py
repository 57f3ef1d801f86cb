"""What a server says without qualgate, beside what a run stored of it."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen


def stored(folder: Path, arm: str) -> list[tuple[Any, ...]]:
    """Text and calls, reason of the end, and the server's counts, of each case in order."""
    columns = "text, calls, finish_reason, prompt_tokens, answer_tokens"
    with closing(sqlite3.connect(folder / "run.db")) as store:
        rows = store.execute(f"SELECT {columns} FROM units WHERE arm = ? ORDER BY case_id", [arm]).fetchall()
    return [_row(text, json.loads(calls or "[]"), *counts) for text, calls, *counts in rows]


def by_hand(address: str, model: str, cases: list[dict[str, Any]]) -> list[tuple[Any, ...]]:
    """The same, asked of the server itself."""
    rows = []
    for case in sorted(cases, key=lambda case: case["id"]):
        body = {"model": model, "messages": case["messages"], "max_tokens": case["max_new_tokens"], "temperature": 0}
        body |= {"tools": case["tools"]} if "tools" in case else {}
        sent = Request(f"{address}/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(sent, timeout=600) as reply:
            answer = json.load(reply)
        [choice], usage = answer["choices"], answer["usage"]
        functions = [call["function"] for call in choice["message"].get("tool_calls") or []]
        calls = [[function["name"], function["arguments"]] for function in functions]
        ended = "stop" if calls else choice["finish_reason"]
        counts = usage["prompt_tokens"], usage["completion_tokens"]
        rows.append(_row(choice["message"]["content"], calls, ended, *counts))
    return rows


def _row(text: str | None, calls: list[Any], *rest: Any) -> tuple[Any, ...]:
    """One answer; what stands around calls is no part of it."""
    return ("" if calls else text), calls, *rest
