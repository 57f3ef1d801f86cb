"""A trace of when requests came, from JSON lines: rows of our own, or spans of OpenTelemetry's GenAI conventions."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from qualgate.intake.jsonl import read_objects

MOST_TOKENS = 1_000_000  # of one answer
LATEST = 1e12  # s
_KEYS = ("at", "evalset", "case", "max_tokens")


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """A request. at: when it comes, in seconds. case, evalset: what it asks, "" for whatever is next. max_tokens: of
    its answer, None for what its case says."""

    at: float
    case: str = ""
    evalset: str = ""
    max_tokens: int | None = None


def read_trace(path: Path) -> tuple[Arrival, ...]:
    """The arrivals in the order of their times. UsageError names the line of what is none."""
    found = [_arrival(row, f"{path}:{line}") for line, row in read_objects(path)]
    arrivals = sorted((one for one in found if one is not None), key=lambda one: one.at)
    if len(arrivals) < 2:
        raise UsageError(f"{path}: a trace needs two requests or more, found {len(arrivals)}")
    return tuple(arrivals)


def _arrival(row: dict[str, Any], where: str) -> Arrival | None:
    """None for a span of something else than a model's answer."""
    if "startTimeUnixNano" in row or "start_time_unix_nano" in row:
        return _of_span(row, where)
    if unknown := [key for key in row if key not in _KEYS]:
        raise UsageError(
            f"{where}: unknown key {unknown[0]!r:.60}. A request has `at` (seconds) and, if it asks a certain case, "
            "`case` and `evalset`; `max_tokens` bounds its answer. Spans of OpenTelemetry have `startTimeUnixNano`."
        )
    at = row.get("at")
    if isinstance(at, bool) or not isinstance(at, int | float) or not -LATEST < at < LATEST:
        raise UsageError(f"{where}: `at` is when the request comes, in seconds, such as 0.25; found {at!r:.40}")
    for key in ("evalset", "case"):
        if not isinstance(row.get(key, ""), str):
            raise UsageError(f"{where}: `{key}` is a text, found {row[key]!r:.40}")
    return Arrival(
        at=float(at),
        case=row.get("case", ""),
        evalset=row.get("evalset", ""),
        max_tokens=_tokens(row.get("max_tokens"), "max_tokens", where),
    )


def _of_span(row: dict[str, Any], where: str) -> Arrival | None:
    """A span as OpenTelemetry writes it in JSON: times in nanoseconds, as a number or as text."""
    attributes = _attributes(row.get("attributes"), where)
    if attributes.get("gen_ai.operation.name", "chat") not in ("chat", "text_completion", "generate_content"):
        return None
    said = row.get("startTimeUnixNano", row.get("start_time_unix_nano"))
    said = int(said) if isinstance(said, str) and re.fullmatch("[0-9]{1,19}", said) else said
    if isinstance(said, bool) or not isinstance(said, int) or not 0 <= said < 10**19:
        raise UsageError(f"{where}: `startTimeUnixNano` is a whole number of nanoseconds, found {said!r:.40}")
    tokens = attributes.get("gen_ai.usage.output_tokens", attributes.get("gen_ai.request.max_tokens"))
    tokens = int(tokens) if isinstance(tokens, str) and re.fullmatch("[0-9]{1,9}", tokens) else tokens
    return Arrival(at=said / 1e9, max_tokens=_tokens(tokens or None, "gen_ai.usage.output_tokens", where))


def _attributes(said: Any, where: str) -> Mapping[str, Any]:
    """Of a span: a mapping, or OTLP's list of keys and typed values."""
    if said is None or isinstance(said, dict):
        return said or {}
    try:
        return {one["key"]: next(iter(one["value"].values())) for one in said}
    except (TypeError, KeyError, AttributeError, StopIteration):
        raise UsageError(f"{where}: `attributes` is a mapping, or a list of {{key, value}}") from None


def _tokens(said: Any, key: str, where: str) -> int | None:
    if said is None:
        return None
    if isinstance(said, bool) or not isinstance(said, int) or not 1 <= said <= MOST_TOKENS:
        raise UsageError(f"{where}: `{key}` is a whole number from 1 to {MOST_TOKENS:,}, found {said!r:.40}")
    return said
