"""Advise whether to quantize first, speculate first, or neither, from where the baseline's time and memory go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Literal

import numpy as np

from qualgate.records import CACHE_TOKEN, DEVICE_MEMORY, ArmEvidence, FourArms, Gain, UnitEvidence

MEMORY_BOUND, DECODE_BOUND, PREFILL_BOUND, TOOL_BOUND = 0.90, 0.60, 0.60, 0.50  # shares from which a rule fires
LEAST_OUTPUT, LEAST_SPEEDUP = 64, 1.1  # mean tokens and predicted speed-up below which drafting is not worth it


@dataclass(frozen=True, slots=True, kw_only=True)
class Traffic:
    """Shares of the baseline's time and memory; None: unknown."""

    memory_share: float | None = None  # of the device's memory that weights and KV cache fill
    tool_share: float | None = None  # of a request's time that tools take
    prefill_share: float | None = None  # Σ time to first token / Σ time of the answers
    mean_output: float | None = None  # tokens
    speedup: float | None = None  # of speculation: Σ time of the baseline's answers / Σ time of its own
    gain: Gain | None = None  # of the same, a token after the first: as measured, and by the law from its parts


def traffic_of(
    baseline: ArmEvidence,
    units: Sequence[UnitEvidence],
    speculation: Sequence[UnitEvidence],
    arms: FourArms,
    at_once: float = 1,
    gain: Gain | None = None,
) -> Traffic:
    """Measure the traffic as far as it was recorded. units: the baseline's that count. at_once: answers that share the
    device. gain: of speculation alone. A memory share declared in the gate file wins: another device may serve."""

    def total(units: Sequence[UnitEvidence], metric: str) -> float | None:
        values = [unit.values.get(metric) for unit in units]
        return None if not values or None in values else float(np.sum(np.array(values, float)))

    counts = [unit.tokens for unit in units]
    ttft, e2e = total(units, "latency.ttft"), total(units, "latency.e2e")
    drafted = total(speculation, "latency.e2e")
    return Traffic(
        memory_share=_filled(baseline.facts, units, at_once) if arms.memory_share is None else arms.memory_share,
        tool_share=arms.tool_share,
        prefill_share=ttft / e2e if ttft is not None and e2e else None,
        mean_output=None if not counts or None in counts else sum(filter(None, counts)) / len(counts),
        speedup=e2e / drafted if e2e and drafted else None,
        gain=gain,
    )


def _filled(facts: Mapping[str, float], units: Sequence[UnitEvidence], at_once: float) -> float | None:
    """The share of the device's memory that weights and the KV cache of the longest answers at once fill."""
    weights, token, device = (facts.get(name) for name in ("memory.weights", CACHE_TOKEN, DEVICE_MEMORY))
    if weights is None or token is None or not device or any(None in (u.prompt_tokens, u.tokens) for u in units):
        return None
    longest = sorted((unit.prompt_tokens or 0) + (unit.tokens or 0) for unit in units)[-ceil(at_once) :]
    return (weights + token * sum(longest)) / device


First = Literal["quantize", "speculate", "neither", "unknown"]


def advise(traffic: Traffic) -> tuple[First, str]:
    """(what to try first, why): memory-bound → quantize, tool- or prefill-bound → neither, decode-bound → speculate.

    "neither": a known figure speaks against both. "unknown": a figure is missing, and the reason names it.
    """
    memory, tools, prefill = traffic.memory_share, traffic.tool_share, traffic.prefill_share
    if memory is not None and memory > MEMORY_BOUND:
        return "quantize", f"weights and KV cache fill {memory:.0%} of the memory (over {MEMORY_BOUND:.0%})"
    if tools is not None and tools >= TOOL_BOUND:
        return "neither", (
            f"{tools:.0%} of a request's time is spent in tools (from {TOOL_BOUND:.0%}): faster tokens hardly show; "
            "look at the tools, and at calling them in parallel"
        )
    if prefill is None:
        return "unknown", f"no times were recorded, so what time goes into is not known{_unknown_memory(traffic)}"
    if prefill >= PREFILL_BOUND:
        return "neither", (
            f"{prefill:.0%} of the time goes before the first token (from {PREFILL_BOUND:.0%}): look at prefix "
            "caching, chunked prefill, shorter prompts and cache-aware routing"
        )
    length, speedup, decode = traffic.mean_output, traffic.speedup, 1 - prefill
    if decode < DECODE_BOUND:
        return "neither", (
            f"{prefill:.0%} of the time goes before the first token and {decode:.0%} into decoding: neither is the one "
            f"thing to work on (from {DECODE_BOUND:.0%}){_unknown_memory(traffic)}"
        )
    spent = f"{decode:.0%} of the time is decoding"
    if length is None:
        return "unknown", f"{spent}, and how many tokens answers have was not recorded{_unknown_memory(traffic)}"
    if length < LEAST_OUTPUT:
        return "neither", (
            f"{spent}, but answers of {length:.0f} tokens are short: below {LEAST_OUTPUT} drafting has little to save"
            f"{_unknown_memory(traffic)}"
        )
    if speedup is None:
        return _by_prediction(traffic, f"{spent} and answers have {length:.0f} tokens")
    measured_gain = _beside(traffic.gain)
    if speedup > LEAST_SPEEDUP:
        return "speculate", (
            f"{spent}, answers have {length:.0f} tokens, and speculation is {speedup:.2f} times as fast{measured_gain}"
        )
    return "neither", (
        f"{spent} and answers have {length:.0f} tokens, but speculation was {speedup:.2f} times as fast as the "
        f"baseline{measured_gain}: up to {LEAST_SPEEDUP:g} it is not worth its memory{_unknown_memory(traffic)}"
    )


def _by_prediction(traffic: Traffic, spent: str) -> tuple[First, str]:
    """Advise on speculation that was not timed, from its acceptance and the cost of passes, if known."""
    predicted = traffic.gain.predicted if traffic.gain else None
    if predicted is None:
        why = f", nor can be predicted: {traffic.gain.predicted_reason}" if traffic.gain else ""
        return "unknown", (
            f"{spent}, which speaks for speculation, but its answers were not timed, so what it gains is not known{why}"
            f"{_unknown_memory(traffic)}"
        )
    prediction = (
        f"{predicted:.2f} times as fast, as predicted from its acceptance and what passes cost; it was not timed"
    )
    if predicted > LEAST_SPEEDUP:
        return "speculate", f"{spent}, and speculation is {prediction}"
    return "neither", (
        f"{spent}, but speculation is {prediction}: up to {LEAST_SPEEDUP:g} it is not worth its memory"
        f"{_unknown_memory(traffic)}"
    )


def _beside(gain: Gain | None) -> str:
    """The measured gain per token after the first, with its bounds and the predicted gain."""
    if gain is None or gain.measured.value is None:
        return ""
    low, high = gain.measured.lower, gain.measured.upper
    bounds = "" if low is None or high is None else f" ({low:.2f} to {high:.2f})"
    law = "" if gain.predicted is None else f", {gain.predicted:.2f} predicted from acceptance and what passes cost"
    return f" ({gain.measured.value:.2f} times a token after the first{bounds}{law})"


def _unknown_memory(traffic: Traffic) -> str:
    if traffic.memory_share is not None:
        return ""
    return "; how full the memory is was not measured (or declare `memory_share`), and over 90% would say quantize"


def beside_choice(first: First, why: str, choice: str, base: str, arms: FourArms) -> str:
    """The advice's reason; if it seems to contradict the choice, add that the measured arms decide."""
    served = {
        "quantize": (arms.quantization, arms.both), "speculate": (arms.speculation, arms.both), "neither": (base,),
    }  # fmt: skip
    if not choice or choice in served.get(first, (choice,)):
        return why
    outcome = "that none of the three replaces the baseline" if choice == base else f"{choice}"
    return (
        f"{why}. This is a rule of thumb for what to try before anything is measured; the measured arms say {outcome}"
    )
