"""Read a trace of arrivals from JSON lines: rows of our own, or spans by OpenTelemetry's GenAI conventions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.jsonl import read_objects

MOST_TOKENS = 1_000_000  # of one answer
LATEST = 1e12  # seconds
_KEYS = ("at", "evalset", "case", "max_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request of a trace. at: arrival in seconds. case, evalset: its case, "" for the next one. max_tokens: limit on
    its answer, None for its case's own."""

    at: float
    case: str = ""
    evalset: str = ""
    max_tokens: int | None = None


def read_trace(path: Path) -> tuple[Arrival, ...]:
    """Return the arrivals by time. UsageError names the line of an invalid row."""
    requests = [_arrival(row, f"{path}:{line}") for line, row in read_objects(path)]
    arrivals = sorted((request for request in requests if request is not None), key=lambda request: request.at)
    if len(arrivals) < 2:
        raise UsageError(f"{path}: a trace needs two requests or more, found {len(arrivals)}")
    return tuple(arrivals)


def _arrival(row: dict[str, Any], where: str) -> Arrival | None:
    """Parse a row; None for a span of something other than a model's answer."""
    if "startTimeUnixNano" in row or "start_time_unix_nano" in row:
        return _span_arrival(row, where)
    if unknown := [key for key in row if key not in _KEYS]:
        raise UsageError(
            f"{where}: unknown key {unknown[0]!r:.60}. A request has `at` (seconds) and, if it asks a certain case, "
            "`case` and `evalset`; `max_tokens` bounds its answer. Spans of OpenTelemetry have `startTimeUnixNano`."
        )
    seconds = row.get("at")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not -LATEST < seconds < LATEST:
        raise UsageError(f"{where}: `at` is when the request comes, in seconds, such as 0.25; found {seconds!r:.40}")
    for key in ("evalset", "case"):
        if not isinstance(row.get(key, ""), str):
            raise UsageError(f"{where}: `{key}` is a text, found {row[key]!r:.40}")
    return Arrival(
        at=float(seconds),
        case=row.get("case", ""),
        evalset=row.get("evalset", ""),
        max_tokens=_tokens(row.get("max_tokens"), "max_tokens", where),
    )


def _span_arrival(row: dict[str, Any], where: str) -> Arrival | None:
    """Parse a span of OpenTelemetry's JSON: times in nanoseconds, as a number or as text."""
    attributes = _attributes(row.get("attributes"), where)
    if attributes.get("gen_ai.operation.name", "chat") not in ("chat", "text_completion", "generate_content"):
        return None
    start = row.get("startTimeUnixNano", row.get("start_time_unix_nano"))
    start = int(start) if isinstance(start, str) and re.fullmatch("[0-9]{1,19}", start) else start
    if isinstance(start, bool) or not isinstance(start, int) or not 0 <= start < 10**19:
        raise UsageError(f"{where}: `startTimeUnixNano` is a whole number of nanoseconds, found {start!r:.40}")
    tokens = attributes.get("gen_ai.usage.output_tokens", attributes.get("gen_ai.request.max_tokens"))
    tokens = int(tokens) if isinstance(tokens, str) and re.fullmatch("[0-9]{1,9}", tokens) else tokens
    return Arrival(at=start / 1e9, max_tokens=_tokens(tokens or None, "gen_ai.usage.output_tokens", where))


def _attributes(written: Any, where: str) -> Mapping[str, Any]:
    """Return a span's attributes from a mapping, or from OTLP's list of keys and typed values."""
    if written is None or isinstance(written, dict):
        return written or {}
    try:
        return {pair["key"]: next(iter(pair["value"].values())) for pair in written}
    except (TypeError, KeyError, AttributeError, StopIteration):
        raise UsageError(f"{where}: `attributes` is a mapping, or a list of {{key, value}}") from None


def _tokens(tokens: Any, key: str, where: str) -> int | None:
    if tokens is None:
        return None
    if isinstance(tokens, bool) or not isinstance(tokens, int) or not 1 <= tokens <= MOST_TOKENS:
        raise UsageError(f"{where}: `{key}` is a whole number from 1 to {MOST_TOKENS:,}, found {tokens!r:.40}")
    return tokens
