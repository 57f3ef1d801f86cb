"""Forecast a run's answers, tokens, time and cost before anything is generated.

Time and answer length come from an earlier run if the store holds one. Otherwise they are estimated: time from a probe
of this machine's float32 speed, length as a share of each answer's limit. On other devices time is unknown until
measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qualgate.records import ArmSpec, Job, ModelFacts, Plan, Prices, UnitKey

if TYPE_CHECKING:
    from qualgate.store.queries import AnswerTime

# Prefill and decode speed as shares of a plain matmul's, measured on the development machine.
READING, DECODING = 0.6, 0.15
LOADING = 8.0  # s of an arm's time outside generation, measured there too
ASSUMED_LENGTH = 0.5  # of the limit: the shipped sets' limits are 1.5 x the reference + 16 tokens
ASSUMED_REST = 0.2  # share of a drafted answer's tokens that a variant decodes itself; it reads the baseline's answer


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmForecast:
    """Expected work, time and cost of one arm."""

    name: str
    weights: str  # "bfloat16", "int4 g32", …
    cases: int
    prompt_tokens: int | None  # None: only the server can count them
    answer_tokens: int  # at most: every answer as long as its limit
    expected_tokens: int  # of its answers
    seconds: float | None  # rough; None: unknown until measured
    measured: bool  # whether time and answer length come from an earlier run
    cost: float | None = None  # at the policy's prices; None: no prices, or unknown until measured
    most: float | None = None  # cost with every answer as long as its limit; None also if seconds are charged


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """Forecast of a run, arm by arm. A sum is None if an arm's part is unknown."""

    arms: tuple[ArmForecast, ...]
    run: str = ""  # the earlier run behind `measured` values
    prices: Prices | None = None

    @property
    def seconds(self) -> float | None:
        """Time of all arms, one after the other."""
        return _sum(arm.seconds for arm in self.arms)

    @property
    def cost(self) -> float | None:
        """Cost of all arms, in the price list's currency."""
        return _sum(arm.cost for arm in self.arms)

    @property
    def most(self) -> float | None:
        """Cost of all arms, with every answer as long as its limit."""
        return _sum(arm.most for arm in self.arms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """Answer times of an earlier run, for a forecast."""

    run: str = ""
    times: Mapping[UnitKey, AnswerTime] = field(default_factory=dict)


def forecast(plan: Plan, workers: int, past: Past | None = None) -> Forecast:
    """Forecast each arm. Without measured times it runs a matmul probe of about 0.1 s."""
    past, probe, prices = past or Past(), None, plan.policy.prices
    arms = []
    for arm in plan.arms:
        jobs = [job for job in plan.jobs if job.arm == arm]
        prompts = [prompt for job in jobs for prompt in job.prompts]
        prompt_lengths = [prompt.tokens_read for prompt in prompts]
        prompt_tokens = sum(prompt_lengths) if all(prompt_lengths) else None
        limits = sum(prompt.max_new_tokens for prompt in prompts)
        earlier_times = _earlier_times(jobs, plan.identities[arm.name].engine, past)
        if earlier_times:
            seconds = _batch_seconds(jobs, earlier_times) / workers + LOADING / workers
            expected = round(
                sum(answer.tokens for answer in earlier_times.values()) / len(earlier_times) * len(prompts)
            )
            place_seconds = sum(answer.seconds for answer in earlier_times.values()) / len(earlier_times) * len(prompts)
        else:
            expected, place_seconds, seconds = round(limits * ASSUMED_LENGTH), None, None
            if plan.identities[arm.name].engine.endswith(("cpu float32", "cpu served")):
                probe = probe or _matmul_flops()
                drafted = any(job.drafted for job in jobs)
                rows = (sum(prompt_lengths) + expected * drafted) / READING
                rows += expected * (ASSUMED_REST if drafted else 1.0) / DECODING
                seconds = 2.0 * plan.models[arm.model].parameters * rows / probe + LOADING / workers
        arms.append(
            ArmForecast(
                name=arm.name,
                weights=_weights(arm, plan.models.get(arm.model)),
                cases=len(prompts),
                prompt_tokens=prompt_tokens,
                answer_tokens=limits,
                expected_tokens=expected,
                seconds=seconds,
                measured=bool(earlier_times),
                cost=_cost(prices, prompt_tokens, expected, place_seconds),
                most=None if prices and prices.device_second else _cost(prices, prompt_tokens, limits, None),
            )
        )
    return Forecast(arms=tuple(arms), run=past.run if any(arm.measured for arm in arms) else "", prices=prices)


def _earlier_times(jobs: Sequence[Job], engine: str, past: Past) -> dict[UnitKey, AnswerTime]:
    """Return the arm's units that an earlier run answered alike: same case, engine and drafting."""
    matches = {
        prompt.key: earlier
        for job in jobs
        for prompt in job.prompts
        if (earlier := past.times.get(prompt.key)) and (earlier.case_hash, earlier.engine) == (prompt.case_hash, engine)
    }
    drafted = any(job.drafted for job in jobs)
    return matches if drafted == any(answer.drafted for answer in matches.values()) else {}


def _batch_seconds(jobs: Sequence[Job], earlier_times: Mapping[UnitKey, AnswerTime]) -> float:
    """Return the time of all jobs, one after the other. A batch takes as long as its slowest answer; a batch without
    known times takes the others' average."""
    slowest = [
        max(known)
        for job in jobs
        if (known := [earlier_times[prompt.key].seconds for prompt in job.prompts if prompt.key in earlier_times])
    ]
    return sum(slowest) / len(slowest) * len(jobs)


def _cost(
    prices: Prices | None, prompt_tokens: int | None, answer_tokens: int, place_seconds: float | None
) -> float | None:
    """Return the cost; None if unknown. place_seconds: time in batches, summed over answers; None if unknown."""
    if (
        prices is None
        or (prices.device_second and place_seconds is None)
        or (prices.prompt_token and prompt_tokens is None)
    ):
        return None
    device_cost = prices.device_second / prices.concurrency * (place_seconds or 0.0)
    return (prompt_tokens or 0) * prices.prompt_token + answer_tokens * prices.output_token + device_cost


def _sum(values: Iterable[float | None]) -> float | None:
    """Return the sum; None if any value is."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _weights(arm: ArmSpec, model: ModelFacts | None) -> str:
    """Describe an arm's weights and draft: "bfloat16", "int4 g32 + ngram, 5 tokens", "gptq checkpoint". model: None
    for a served arm."""
    method = model.method if model and not arm.quantize else ""
    label = f"{method} checkpoint{arm.beside}" if method else arm.weights_label
    return f"{label} + {arm.speculation.label}" if arm.speculation else label


def _matmul_flops() -> float:
    """Return the float32 FLOP/s (2 per multiply-add) of a numpy matmul on all cores."""
    import time

    import numpy

    operand = numpy.ones((512, 512), dtype=numpy.float32)
    numpy.matmul(operand, operand)
    start, rounds = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < 0.1:
        numpy.matmul(operand, operand)
        rounds += 1
    return rounds * 2 * 512**3 / elapsed
