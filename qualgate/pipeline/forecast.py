"""The forecast of a run: answers, tokens, time and money, before anything is generated.

Time and the length of answers are what an earlier run's answers took where the store holds one. Else they are guessed:
time from a probe of this machine's float32 speed, length as a share of each answer's limit. Of a device that the probe
does not reach nothing is guessed: unknown until measured.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from qualgate.records import ArmSpec, Job, ModelFacts, Plan, Prices, UnitKey

if TYPE_CHECKING:
    from qualgate.store.queries import AnswerTime

# Of a plain matmul's speed, what tokens that are read and tokens that are decoded reached on the development machine.
READING, DECODING = 0.6, 0.15
LOADING = 8.0  # s of an arm's time that are not generation, likewise
ASSUMED_LENGTH = 0.5  # of the limit: the shipped sets' limits are 1.5 x the reference + 16 tokens
ASSUMED_REST = 0.2  # of a drafted answer's tokens that a variant decodes itself; it reads all of the baseline's


@dataclass(frozen=True, slots=True, kw_only=True)
class ArmForecast:
    """What one arm will take."""

    name: str
    weights: str  # "bfloat16", "int4 g32", …
    cases: int
    prompt_tokens: int | None  # None: only the server that is asked can count them
    answer_tokens: int  # at most: every answer as long as its limit
    expected_tokens: int  # of its answers
    seconds: float | None  # rough; None: unknown until measured
    measured: bool  # time and length of answers are an earlier run's
    cost: float | None = None  # at the policy's prices; None: none are named, or unknown until measured
    most: float | None = None  # likewise, every answer as long as its limit; None too where seconds are charged


@dataclass(frozen=True, slots=True, kw_only=True)
class Forecast:
    """What a run would take, arm by arm. None where one of them is not known."""

    arms: tuple[ArmForecast, ...]
    run: str = ""  # the earlier one that what is `measured` was seen in
    prices: Prices | None = None

    @property
    def seconds(self) -> float | None:
        """Of all arms, one after the other."""
        return _sum(arm.seconds for arm in self.arms)

    @property
    def cost(self) -> float | None:
        """Of all arms, in the price list's currency."""
        return _sum(arm.cost for arm in self.arms)

    @property
    def most(self) -> float | None:
        """The same, with every answer as long as it may be."""
        return _sum(arm.most for arm in self.arms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """An earlier run's answers, by which a forecast is measured."""

    run: str = ""
    times: Mapping[UnitKey, AnswerTime] = field(default_factory=dict)


def forecast(plan: Plan, workers: int, past: Past | None = None) -> Forecast:
    """What each arm will take (and, where nothing is measured, a probe of ~0.1 s of matmul)."""
    past, probe, prices = past or Past(), None, plan.policy.prices
    arms = []
    for arm in plan.arms:
        jobs = [job for job in plan.jobs if job.arm == arm]
        prompts = [prompt for job in jobs for prompt in job.prompts]
        counts = [prompt.tokens_read for prompt in prompts]
        read, limits = sum(counts) if all(counts) else None, sum(p.max_new_tokens for p in prompts)
        seen = _seen(jobs, plan.identities[arm.name].engine, past)
        if seen:
            seconds = _batch_seconds(jobs, seen) / workers + LOADING / workers
            expected = round(sum(one.tokens for one in seen.values()) / len(seen) * len(prompts))
            held = sum(one.seconds for one in seen.values()) / len(seen) * len(prompts)
        else:
            expected, held, seconds = round(limits * ASSUMED_LENGTH), None, None
            if plan.identities[arm.name].engine.endswith(("cpu float32", "cpu served")):
                probe = probe or _matmul_flops()
                drafted = any(job.drafted for job in jobs)
                rows = (sum(counts) + expected * drafted) / READING
                rows += expected * (ASSUMED_REST if drafted else 1.0) / DECODING
                seconds = 2.0 * plan.models[arm.model].parameters * rows / probe + LOADING / workers
        arms.append(
            ArmForecast(
                name=arm.name,
                weights=_weights(arm, plan.models.get(arm.model)),
                cases=len(prompts),
                prompt_tokens=read,
                answer_tokens=limits,
                expected_tokens=expected,
                seconds=seconds,
                measured=bool(seen),
                cost=_cost(prices, read, expected, held),
                most=None if prices and prices.device_second else _cost(prices, read, limits, None),
            )
        )
    return Forecast(arms=tuple(arms), run=past.run if any(arm.measured for arm in arms) else "", prices=prices)


def _seen(jobs: Sequence[Job], engine: str, past: Past) -> dict[UnitKey, AnswerTime]:
    """Of an arm's units those that were answered before in the same way: the same case, engine and drafting."""
    found = {
        prompt.key: one
        for job in jobs
        for prompt in job.prompts
        if (one := past.times.get(prompt.key)) and (one.case_hash, one.engine) == (prompt.case_hash, engine)
    }
    drafted = any(job.drafted for job in jobs)
    return found if drafted == any(one.drafted for one in found.values()) else {}


def _batch_seconds(jobs: Sequence[Job], seen: Mapping[UnitKey, AnswerTime]) -> float:
    """Of all jobs, one after the other. A batch takes as long as its slowest answer; one of which none is known takes
    what the others take on average."""
    slowest = [
        max(known)
        for job in jobs
        if (known := [seen[prompt.key].seconds for prompt in job.prompts if prompt.key in seen])
    ]
    return sum(slowest) / len(slowest) * len(jobs)


def _cost(prices: Prices | None, read: int | None, written: int, held: float | None) -> float | None:
    """held: seconds that the answers hold their places in batches, summed over answers. None: not known."""
    if prices is None or (prices.device_second and held is None) or (prices.prompt_token and read is None):
        return None
    of_device = prices.device_second / prices.concurrency * (held or 0.0)
    return (read or 0) * prices.prompt_token + written * prices.output_token + of_device


def _sum(values: Iterable[float | None]) -> float | None:
    """None where one is not known: a part is not the whole."""
    total = 0.0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _weights(arm: ArmSpec, model: ModelFacts | None) -> str:
    """What an arm's weights are, in a word, and who drafts for it: "bfloat16", "int4 g32 + ngram, 5 tokens", "gptq
    checkpoint". model: None of a served arm's, which nobody here sees."""
    method = model.method if model and not arm.quantize else ""
    label = f"{method} checkpoint{arm.beside}" if method else arm.weights_label
    return f"{label} + {arm.speculation.label}" if arm.speculation else label


def _matmul_flops() -> float:
    """float32 multiply-adds x 2 a second that numpy reaches here on all cores."""
    import time

    import numpy

    left = numpy.ones((512, 512), dtype=numpy.float32)
    numpy.matmul(left, left)
    start, rounds = time.perf_counter(), 0
    while (elapsed := time.perf_counter() - start) < 0.1:
        numpy.matmul(left, left)
        rounds += 1
    return rounds * 2 * 512**3 / elapsed
