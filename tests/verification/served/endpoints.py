"""The row `endpoints`: the statement of `compare --tokens` about pairs of arms of the reference model, whose detection
and false alarms are measured beside what it states.

Of each arm a pool of answers to the command's own prompts is drawn once, by the engine in process. A comparison takes
its answers of both pools, none twice, and enters where the command does after it has asked. A sound pair has one pool.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import sqrt
from pathlib import Path
from typing import Any

import numpy as np

from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.engine.prompts import Renderer
from qualgate.pipeline.endpoint_statement import ANCHORS, Statement, state
from qualgate.pipeline.endpoints import MOST, Asked, chosen_prompts
from qualgate.quant.model_files import read_files
from qualgate.quant.recipes import parse_recipe
from qualgate.records import ArmSpec, Case, Completion, Job, Prompt, Sampling, UnitKey
from qualgate.refmodel import PATH
from qualgate.served.answer import Answer
from tests.verification.goals import SERVED

ALPHA, NEAR = 0.05, 0.10
SEEN = 25  # one comparison of so many also states its chances


@dataclass(frozen=True, slots=True, kw_only=True)
class Arm:
    """What is other than at the baseline. before: a text that its template puts before the prompt."""

    spec: Mapping[str, Any] = field(default_factory=dict)
    temperature: float = 1.0
    before: str = ""


SOUND = "sound pair"
ARMS = {
    SOUND: Arm(),
    "4-bit weights": Arm(spec={"quantize": parse_recipe("int4")}),
    "8-bit weights": Arm(spec={"quantize": parse_recipe("int8")}),
    "8-bit KV cache": Arm(spec={"kv_cache": "int8"}),
    "temperature 1.02": Arm(temperature=1.02),
    "another chat template": Arm(before="You are a helpful assistant. "),
}
Pool = Sequence[Sequence[Answer]]  # by prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """pool: answers to each prompt, of the sound pair twice as many. designs: (prompts, answers) of a comparison."""

    prompts: int = 48
    pool: int = 40
    designs: tuple[tuple[int, int], ...] = ((4, 10), (12, 10))
    comparisons: int = 500


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """Rounds and the row. quick: two arms, few prompts and comparisons."""
    size = Size(prompts=4, pool=10, designs=((4, 5),), comparisons=20) if quick else Size()
    arms = list(ARMS)[: 2 if quick else None]
    base = drawn(ARMS[SOUND], 2 * size.pool, size, seed=0)
    others = {name: base if name == SOUND else drawn(ARMS[name], size.pool, size, seed)
              for seed, name in enumerate(arms, start=1)}  # fmt: skip
    rounds = [
        {"pair": name, "prompts": design[0], "answers": design[1], "log-probs": logprobs,
         **rates(base, others[name], name, design, size, logprobs)}
        for design in size.designs for logprobs in (False, True) for name in arms
    ]  # fmt: skip
    short = [one for one in rounds if not one["met"]]
    told = {f"{one['pair']}, {one['prompts']} x {one['answers']}{', log-probs' * one['log-probs']}":
            f"{one['found']:.3f}" + (f" / {one['stated']:.2f}" if one["stated"] is not None else "")
            for one in rounds}  # fmt: skip
    few = f"{len(arms)} arms and {size.comparisons} comparisons" if quick else None
    row = SERVED.row("endpoints", {"found / stated": told, "off": short}, met=not short, few=few, by_chance=True)
    return rounds, [row]


def drawn(arm: Arm, answers: int, size: Size, seed: int) -> Pool:
    """So many answers of an arm to each of the command's prompts."""
    texts = [body["messages"][0]["content"] for body in chosen_prompts([], Path(), 10**9)[: size.prompts]]
    bodies = [
        {"id": str(row), "messages": [{"role": "user", "content": arm.before + text}], "max_new_tokens": MOST}
        for row, text in enumerate(texts)
    ]
    cases = [Case(evalset="open", body=body) for body in bodies]
    rendered = Renderer(read_files(PATH)).render(cases)
    spec = ArmSpec(name="baseline", model=str(PATH), **{"dtype": "float32"} | dict(arm.spec))
    pool = []
    with tempfile.TemporaryDirectory() as cache:
        loaded = load_arm(spec, cache, {}, device="cpu")
        for case, ids in zip(cases, rendered, strict=True):
            prompt = Prompt(key=UnitKey("baseline", "open", case.id), case_hash=case.hash, token_ids=tuple(ids),
                            max_new_tokens=MOST, sampling=Sampling(temperature=arm.temperature))  # fmt: skip
            many = tuple(replace(prompt, key=replace(prompt.key, repeat=number)) for number in range(answers))
            job = Job(index=0, arm=spec, prompts=many, artifact="", drafted=False, seed=seed)
            pool.append([heard(completion) for completion in run_job(loaded, job).completions])
    return pool


def heard(completion: Completion) -> Answer:
    """The completion as a server's answer, with log-probs."""
    tokens = completion.token_ids
    return Answer(text=completion.text, thought="", calls=(), finish=completion.finish_reason, token_ids=None,
                  logprobs=(), prompt_tokens=completion.prompt_tokens, completion_tokens=len(tokens), first=0.0,
                  last=0.0, max_gap=None,
                  spelled=tuple(zip((f"{token} " for token in tokens), completion.logprobs, strict=True)))  # fmt: skip


def rates(base: Pool, other: Pool, name: str, design: tuple[int, int], size: Size, logprobs: bool) -> dict[str, Any]:
    """How often the statement is `different`, and how often it states that it would be."""
    found, stated = 0, []
    for number in range(size.comparisons):
        anchors = {name: ANCHORS[name]} if name in ANCHORS and not number % SEEN else {}
        made = statement(base, other, design, number, logprobs, anchors)
        assert not made.faults, made.faults
        found += made.apart is not None and made.apart.different
        stated += made.chances.values()
    share = found / size.comparisons
    if name == SOUND:
        met = share <= ALPHA + 3 * sqrt(ALPHA * (1 - ALPHA) / size.comparisons)
        return {"found": share, "stated": None, "met": met}
    mean, off = float(np.mean(stated)), 3 * float(np.std(stated)) / sqrt(len(stated))
    return {"found": share, "stated": mean, "met": abs(share - mean) <= NEAR + off}


def statement(
    base: Pool, other: Pool, design: tuple[int, int], seed: int, logprobs: bool, anchors: Mapping[str, Any]
) -> Statement:
    """One comparison, as the command judges it."""
    generator = np.random.default_rng(seed)
    prompts, answers = design
    side_a, side_b = [], []
    for prompt in generator.permutation(len(base))[:prompts]:
        order = generator.permutation(len(base[prompt]))
        again = order[answers:] if other is base else generator.permutation(len(other[prompt]))
        for side, pool, indices in ((side_a, base, order), (side_b, other, again)):
            chosen = [pool[prompt][index] for index in indices[:answers]]
            side.append([_spelled(answer) if logprobs else replace(answer, spelled=()) for answer in chosen])
    first = [answers[0] for answers in side_a], [answers[0] for answers in side_b]
    asked = Asked(models=("m", "m"), prompts=prompts, most=MOST, tokens=0, first=first, stages=[(side_a, side_b)])
    return state(asked, ALPHA, anchors)


def _spelled(answer: Answer) -> Answer:
    """With a text that its tokens spell."""
    return replace(answer, text="".join(token for token, _ in answer.spelled))
