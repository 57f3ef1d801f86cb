"""The row `power`: samples of two arms at a temperature, by our test of their laws and by Model Equality Testing's.

Pairs, prompts and sizes are fixed here. Of each arm a pool is drawn by the engine in process, by a seed of its own; a
trial takes as many answers a prompt of both pools, none twice. Of the baseline against itself both are of one
pool, so that the two laws are one.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import sqrt
from typing import Any

import numpy as np

from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.quant.recipes import parse_recipe
from qualgate.records import ArmSpec, Job, Sampling
from qualgate.refmodel import PATH
from qualgate.stats.laws import same_law
from tests.benchmarks.questions import KINDS, asked_of
from tests.verification.goals import SERVED
from tests.verification.served import model_equality

ALPHA, GAIN, ENOUGH = 0.05, 0.10, 0.85
MOST = 32  # tokens of an answer
DEALS = 199


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """Another one than the baseline at temperature 1.5: quantized, or drawn otherwise."""

    name: str
    quantize: str = ""
    temperature: float = 1.5
    top_p: float = 1.0


BASELINE = Arm(name="baseline")
OTHERS = (
    Arm(name="int8", quantize="int8"),
    Arm(name="int4", quantize="int4"),
    Arm(name="mxfp4", quantize="mxfp4"),
    Arm(name="int3", quantize="int3"),
    Arm(name="temperature 1.6", temperature=1.6),
    Arm(name="temperature 1.8", temperature=1.8),
    Arm(name="top-p 0.97", top_p=0.97),
)
Pool = Mapping[str, Sequence[tuple[tuple[int, ...], str]]]  # case → answers, as tokens and as text


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """per_set: prompts of each of seven sets; answers: of each prompt and arm, in a trial."""

    per_set: int = 4
    answers: int = 10
    pool: int = 60
    trials: int = 100


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rounds and the row. quick: one pair, two sets' worth of answers, a few trials."""
    size = Size(per_set=1, answers=4, pool=10, trials=5) if quick else Size()
    others = OTHERS[1:2] if quick else OTHERS
    base = drawn(BASELINE, size, seed=1)
    rounds = [{"pair": "baseline", **powers(base, base, size)}]
    rounds += [
        {"pair": arm.name, **powers(base, drawn(arm, size, seed), size)} for seed, arm in enumerate(others, start=2)
    ]
    same, *different = rounds
    short = [one["pair"] for one in different if one["theirs"] <= ENOUGH and one["ours"] < one["theirs"] + GAIN]
    sound = same["ours"] <= ALPHA + 3 * sqrt(ALPHA * (1 - ALPHA) / size.trials)
    told = {"size": same["ours"], "power, ours / theirs / theirs dealt within prompts":
            {one["pair"]: f"{one['ours']:.2f} / {one['theirs']:.2f} / {one['within']:.2f}" for one in different},
            "short of it": short}  # fmt: skip
    few = f"{len(different)} pair and {size.trials} trials" if quick else None
    return rounds, [SERVED.row("power", told, met=sound and not short, few=few, by_chance=True)]


def drawn(arm: Arm, size: Size, seed: int) -> Pool:
    """So many answers of an arm to each prompt."""
    recipe = parse_recipe(arm.quantize) if arm.quantize else None
    spec = ArmSpec(name=arm.name, model=str(PATH), dtype="float32", quantize=recipe)
    sampling = Sampling(temperature=arm.temperature, top_p=arm.top_p)
    prompts = [one for kind in asked_of(KINDS, size.per_set).values() for one in kind]
    said: dict[str, list[tuple[tuple[int, ...], str]]] = {}
    with tempfile.TemporaryDirectory() as cache:
        loaded = load_arm(spec, cache, {}, device="cpu")
        for prompt in prompts:
            many = tuple(
                replace(prompt, key=replace(prompt.key, repeat=number), sampling=sampling,
                        max_new_tokens=min(MOST, prompt.max_new_tokens))
                for number in range(size.pool)
            )  # fmt: skip
            job = Job(index=0, arm=spec, prompts=many, artifact="", drafted=False, seed=seed)
            found = run_job(loaded, job).completions
            said[f"{prompt.key.evalset}/{prompt.key.case_id}"] = [(one.token_ids, one.text) for one in found]
    return said


def powers(one: Pool, other: Pool, size: Size) -> dict[str, float]:
    """Share of trials in which each test tells the two apart."""
    found = {"ours": 0, "theirs": 0, "within": 0}
    for trial in range(size.trials):
        generator = np.random.default_rng(trial)
        mine, its = [], []
        for case, pool in one.items():
            order = generator.permutation(len(pool))
            mine.append([pool[index] for index in order[: size.answers]])
            again = order[size.answers :] if one is other else generator.permutation(len(other[case]))
            its.append([other[case][index] for index in again[: size.answers]])
        tokens = [([said for said, _ in a], [said for said, _ in b]) for a, b in zip(mine, its, strict=True)]
        texts, others = ([[text for _, text in answers] for answers in side] for side in (mine, its))
        found["ours"] += same_law(tokens, trial, DEALS).p <= ALPHA
        found["theirs"] += model_equality.p_value(texts, others, generator, DEALS) <= ALPHA
        found["within"] += model_equality.p_value(texts, others, generator, DEALS, within=True) <= ALPHA
    return {name: count / size.trials for name, count in found.items()}
