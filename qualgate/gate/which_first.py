"""Quantize first, speculate first, or neither? By what the baseline's time and memory go into."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from qualgate.records import FourArms, UnitEvidence

MEMORY_BOUND, DECODE_BOUND, PREFILL_BOUND, TOOL_BOUND = 0.90, 0.60, 0.60, 0.50  # shares from which a rule fires
LEAST_OUTPUT, LEAST_SPEEDUP = 64, 1.1  # mean tokens and predicted speed-up below which drafting is not worth it


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """What the baseline's time and memory go into; None: not known."""

    memory_share: float | None = None  # of the device's memory that weights and KV cache fill
    tool_share: float | None = None  # of a request's time that tools take
    prefill_share: float | None = None  # Σ time to first token / Σ time of the answers
    mean_output: float | None = None  # tokens
    speedup: float | None = None  # of speculation: Σ time of the baseline's answers / Σ time of its own


def traffic_of(baseline: Sequence[UnitEvidence], speculation: Sequence[UnitEvidence], arms: FourArms) -> Traffic:
    """Measured where times were recorded; memory and tools as the gate file declares them."""

    def total(units: Sequence[UnitEvidence], metric: str) -> float | None:
        values = [unit.values.get(metric) for unit in units]
        return None if not values or None in values else float(np.sum(np.array(values, float)))

    counts = [unit.tokens for unit in baseline]
    ttft, e2e = total(baseline, "latency.ttft"), total(baseline, "latency.e2e")
    drafted = total(speculation, "latency.e2e")
    return Traffic(
        memory_share=arms.memory_share,
        tool_share=arms.tool_share,
        prefill_share=ttft / e2e if ttft is not None and e2e else None,
        mean_output=None if not counts or None in counts else sum(filter(None, counts)) / len(counts),
        speedup=e2e / drafted if e2e and drafted else None,
    )


def advise(traffic: Traffic) -> tuple[Literal["quantize", "speculate", "neither", "unknown"], str]:
    """(what to try first, why): memory-bound → quantize, tool- or prefill-bound → neither, decode-bound → speculate."""
    memory, tools, prefill = traffic.memory_share, traffic.tool_share, traffic.prefill_share
    if memory is not None and memory > MEMORY_BOUND:
        return "quantize", f"weights and KV cache fill {memory:.0%} of the memory (over {MEMORY_BOUND:.0%})"
    if tools is not None and tools >= TOOL_BOUND:
        return "neither", (
            f"{tools:.0%} of a request's time is spent in tools (from {TOOL_BOUND:.0%}): faster tokens hardly show; "
            "look at the tools, and at calling them in parallel"
        )
    if prefill is None:
        return (
            "unknown",
            "no times were recorded, and neither memory_share nor tool_share is declared to be high",
        )
    if prefill >= PREFILL_BOUND:
        return "neither", (
            f"{prefill:.0%} of the time goes before the first token (from {PREFILL_BOUND:.0%}): look at prefix "
            "caching, chunked prefill, shorter prompts and cache-aware routing"
        )
    length, speedup = traffic.mean_output or 0.0, traffic.speedup
    decode = 1 - prefill
    if decode >= DECODE_BOUND and length >= LEAST_OUTPUT and speedup is not None and speedup > LEAST_SPEEDUP:
        return "speculate", (
            f"{decode:.0%} of the time is decoding, answers have {length:.0f} tokens on average, "
            f"and speculation is {speedup:.2f} times as fast"
        )
    return "neither", (
        f"no rule fires: {decode:.0%} of the time is decoding (from {DECODE_BOUND:.0%}), {length:.0f} tokens an answer "
        f"(from {LEAST_OUTPUT}), speculation {'not timed' if speedup is None else f'{speedup:.2f} times as fast'} "
        f"(over {LEAST_SPEEDUP:g})"
    )
