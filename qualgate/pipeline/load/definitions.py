"""Definitions of TTFT, TPOT, gaps and end to end for one request: qualgate's, and those of two other programs.

Each is a pure function of the same times, so numbers of the same name can be compared. Sources: vLLM's
`benchmarks/serve.py` with `lib/endpoint_request_func.py` (commits 009e6d4, 02cfb53), and GuideLLM's
`schemas/request_stats.py`, `schemas/base/statistics.py` and `backends/openai/http.py` (06cef29, 0280467, 03358ed).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from qualgate.pipeline.load.sent import Sent
from qualgate.stats.order_statistics import interpolated, quantile

Number = Callable[[Sent], float | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """Functions from an answered request to its times (seconds), and from a list of times to percentiles.

    windowed: only requests between warm-up and cool-down count; else all. weights: how often an answer's value of a
    time counts in its percentiles; once by default.
    """

    name: str
    ttft: Number
    tpot: Number
    e2e: Number
    gaps: Callable[[Sent], Sequence[float]]
    percentile: Callable[[Sequence[float], float], float | None]
    windowed: bool = True
    weights: Mapping[str, Callable[[Sent], int]] = field(default_factory=dict)


def _between(times: Sequence[float]) -> list[float]:
    return [after - before for before, after in pairwise(times)]


def _first(sent: Sent) -> float:
    """Return the time of the first piece with content; the end if there was none."""
    return sent.pieces[0] if sent.pieces else sent.ended


def _last(sent: Sent) -> float:
    return sent.pieces[-1] if sent.pieces else sent.ended


def _per_further_token(sent: Sent, times: Sequence[float]) -> float | None:
    return (times[-1] - times[0]) / (sent.tokens - 1) if times and sent.tokens is not None and sent.tokens > 1 else None


def _guidellm_tokens(sent: Sent) -> int:
    return len(sent.pieces) if sent.tokens is None else sent.tokens


def _value(values: Sequence[float], p: float) -> float | None:
    estimate = quantile(values, p)
    return estimate.value if estimate else None


QUALGATE = Definition(
    name="qualgate",
    ttft=lambda sent: _first(sent) - sent.due,
    # Tokens that came in one piece have no times of their own; 0 s would meet any limit.
    tpot=lambda sent: _per_further_token(sent, sent.pieces) if len(sent.pieces) > 1 else None,
    e2e=lambda sent: _last(sent) - sent.due,
    gaps=lambda sent: _between(sent.pieces),
    percentile=_value,
)
VLLM = Definition(
    name="vllm",
    ttft=lambda sent: sent.events[0] - sent.began if sent.events else None,
    tpot=lambda sent: _per_further_token(sent, sent.events),
    e2e=lambda sent: sent.events[-1] - sent.began if sent.events else None,
    gaps=lambda sent: _between(sent.events),
    percentile=interpolated,
    windowed=False,
)
GUIDELLM = Definition(
    name="guidellm",
    ttft=lambda sent: sent.pieces[0] - sent.began if sent.pieces else None,
    tpot=lambda sent: (_last(sent) - sent.began) / tokens if (tokens := _guidellm_tokens(sent)) else None,
    e2e=lambda sent: sent.ended - sent.began,
    gaps=lambda sent: [(_last(sent) - _first(sent)) / (tokens - 1)] if (tokens := _guidellm_tokens(sent)) > 1 else [],
    percentile=_value,
    weights={"tpot": _guidellm_tokens, "gap": lambda sent: _guidellm_tokens(sent) - 1},
)
DEFINITIONS = {definition.name: definition for definition in (QUALGATE, VLLM, GUIDELLM)}
