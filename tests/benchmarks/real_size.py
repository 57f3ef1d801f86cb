"""Benchmark `real-size`: a real chat model on two cores, and the products of the shapes that people have.

The model is SmolLM2-135M-Instruct (vocabulary 49,152), see `first_hour.chat_model`; its cases are the first turns of
MT-Bench. Contenders answer in turns. A product's rate is told as a share of what the same threads multiply in registers
or read from memory, whichever takes it longer.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch

from qualgate.engine.choice import threads_of_kernels
from qualgate.engine.dense import head_of
from qualgate.engine.drift import LOGITS_AT_ONCE
from qualgate.engine.loaded import LoadedArm
from qualgate.engine.prompts import Renderer
from qualgate.quant.model_files import read_files
from qualgate.quant.packing import quantize_weight
from qualgate.quant.recipes import parse_recipe
from qualgate.records import Case, Prompt, UnitKey
from qualgate_kernels import cpu, dispatch
from qualgate_kernels.cpu.library import fuse, read, threaded
from qualgate_kernels.dense import prepare_dense
from tests.benchmarks import ours, peers, vllm_peer
from tests.benchmarks.goals import REAL_SIZE
from tests.benchmarks.race import Standing, race, shown, standing
from tests.verification.first_hour.chat_model import chat_model
from tests.verification.references.agreement import NoReference
from tests.verification.shared import DATA

RECIPES: dict[str, Any] = {"int8": "int8", "int4": {"method": "int4", "group_size": 32}}
SHAPES = ((3072, 576), (576, 1536), (9728, 896), (896, 4864), (17920, 1536), (6144, 4096))  # of 135M to 8B, [N, K]
ROWS = (8, 12, 64)
HEADS = ((49_152, 576), (151_936, 896))  # vocabulary, width
POSITIONS, TOKENS, KIND = 768, 64, "text"
AT_LEAST = {"plain": 2.5, "vllm_plain": 2.5, "drafted_int8": 1.0, "drafted_int4": 1.0, "products": 0.7, "drift": 0.6}
LOAD, LOAD_AGAIN = 3.0, 1.0  # seconds

Found = tuple[list[dict[str, Any]], dict[str, Any]]  # rounds and row


@dataclass(kw_only=True)
class Ground:
    """What several rows are measured with."""

    work: Path
    model: Path
    cases: int
    rounds: int

    @cached_property
    def prompts(self) -> dict[str, list[Prompt]]:
        """The first turns, as prompts of the baseline."""
        lines = (DATA / "mt_bench" / "question.jsonl").read_text(encoding="utf-8").splitlines()[: self.cases]
        questions = [json.loads(line)["turns"][0] for line in lines]
        cases = [
            Case(evalset="mt_bench", body={"id": str(at), "messages": [{"role": "user", "content": text}]})
            for at, text in enumerate(questions)
        ]
        rendered = zip(cases, Renderer(read_files(self.model)).render(cases), strict=True)
        return {
            KIND: [
                Prompt(
                    key=UnitKey("baseline", case.evalset, case.id),
                    case_hash=case.hash,
                    token_ids=tuple(ids),
                    max_new_tokens=TOKENS,
                )
                for case, ids in rendered
            ]
        }

    @cached_property
    def baseline(self) -> LoadedArm:
        """The model in bfloat16."""
        return ours.load("baseline", self.model, self.work / "cache")


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """All rows, or those of `only`: 5 minutes of two idle cores without vLLM; quick: 3 cases, two rounds."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        try:
            model, why = chat_model(work), "" if (DATA / "mt_bench").is_dir() else "no cases of MT-Bench"
        except NoReference as reason:
            model, why = work, str(reason)
        ground = Ground(work=work, model=model, cases=3 if quick else 12, rounds=2 if quick else 5)
        parts: dict[str, Callable[[str], Found]] = {
            "plain": partial(_plain, ground),
            "vllm_plain": partial(_vllm, ground),
            "drafted_int8": partial(_drafted, ground),
            "drafted_int4": partial(_drafted, ground),
            "products": partial(_products, ground),
            "drift": partial(_drift, ground),
            "load": partial(_load, ground),
        }

        def missing(id: str) -> str:
            return "" if id in ("products", "drift") else why or (vllm_peer.missing() if id.startswith("vllm") else "")

        rounds, rows = vllm_peer.measured_rows(REAL_SIZE, parts, only, missing)
    few = f"{ground.rounds} rounds of {ground.cases} cases" if quick else None
    return REAL_SIZE.result(rounds=[{"threads": torch.get_num_threads()}, *rounds], rows=rows, few=few)


def _row(id: str, stood: Standing) -> dict[str, Any]:
    met = stood.ratio >= AT_LEAST[id] and stood.unlike == 0
    return REAL_SIZE.row(id, stood.ratio, met=met, spread=[min(stood.ratios), max(stood.ratios)]) | stood.shown


def _plain(ground: Ground, id: str) -> Found:
    model = peers.load_transformers(peers.write_dequantized(ground.model, None, ground.work, ground.work / "floats"))
    peer, _ = peers.Transformers(model, ground.baseline.stop_ids, ground.prompts).at_best("generate", (8, 16))
    rounds = race(id, {"ours": ours.plain(ground.baseline, ground.prompts), "generate": peer}, [KIND], ground.rounds)
    return shown(id, rounds), _row(id, standing(rounds, "ours", "generate"))


def _vllm(ground: Ground, id: str) -> Found:
    with vllm_peer.serving(ground.model, "float32", ground.prompts, ground.work) as vllm:
        contenders = {"ours": ours.plain(ground.baseline, ground.prompts), "vllm": vllm.contender}
        rounds = race(id, contenders, [KIND], ground.rounds)
    return shown(id, rounds), _row(id, standing(rounds, "ours", "vllm"))


def _drafted(ground: Ground, id: str) -> Found:
    """With drift, which is measured at each token of the baseline's answers, against plain decoding without it."""
    name = id.removeprefix("drafted_")
    arm, left = ours.load(name, ground.model, ground.work / "cache", RECIPES[name]), ground.work / id / "artifacts"
    ours.leave_answers(ground.baseline, ground.prompts, left)
    contenders = {"drafted": ours.drafted(arm, ground.prompts, left), "plain": ours.plain(arm, ground.prompts)}
    rounds = race(id, contenders, [KIND], ground.rounds)
    return shown(id, rounds), _row(id, standing(rounds, "drafted", "plain"))


def _products(ground: Ground, id: str) -> Found:
    """The lowest share is the row's."""
    measurements = list[dict[str, Any]]()
    for name, recipe in {"bfloat16": None, **RECIPES}.items():
        for shape in SHAPES:
            weight = torch.randn(shape, generator=torch.Generator().manual_seed(1)).mul_(0.05).bfloat16()
            packed = None if recipe is None else quantize_weight(weight, parse_recipe(recipe))
            layout: Any = prepare_dense(weight) if packed is None else cpu.prepare(packed)
            for rows in ROWS:
                x = torch.randn(rows, shape[1])
                with threaded(torch.get_num_threads()):
                    seconds = _fastest(partial(cpu.matmul, x, layout), ground.rounds)
                least = max(rows * weight.numel() / _multiply_rate(), layout.nbytes / _read_rate())
                measurements.append({"format": name, "shape": shape, "rows": rows, "share": least / seconds})
    worst = min(measurements, key=lambda one: one["share"])
    share = worst["share"]
    spread = [share, max(one["share"] for one in measurements)]
    return measurements, REAL_SIZE.row(id, share, met=share >= AT_LEAST[id], spread=spread) | {"worst": worst}


def _drift(ground: Ground, id: str) -> Found:
    measurements = list[dict[str, Any]]()
    for vocabulary, width in HEADS:
        generator = torch.Generator().manual_seed(1)
        hidden = torch.randn(POSITIONS, width, generator=generator)
        weight = torch.randn(vocabulary, width, generator=generator).mul_(0.05).bfloat16()
        head, near = head_of({"weight": weight}), hidden + 0.01 * torch.randn(POSITIONS, width, generator=generator)
        tokens = torch.zeros(POSITIONS, dtype=torch.int64)
        with threads_of_kernels(), torch.inference_mode():
            own = head(near)  # the pass has them already
            parts = [*zip(*(side.split(LOGITS_AT_ONCE // vocabulary) for side in (hidden, own, tokens)), strict=True)]
            seconds = _fastest(partial(_compare, head, parts), ground.rounds)
        share = POSITIONS * weight.numel() / _multiply_rate() / seconds
        measurements.append({"vocabulary": vocabulary, "width": width, "seconds": seconds, "share": share})
    shares = [one["share"] for one in measurements]
    return measurements, REAL_SIZE.row(
        id, min(shares), met=min(shares) >= AT_LEAST[id], spread=[min(shares), max(shares)]
    )


def _compare(head: torch.nn.Module, parts: Sequence[tuple[torch.Tensor, ...]]) -> None:
    for states, logits, tokens in parts:
        dispatch.kl(head(states), logits, tokens)


def _load(ground: Ground, id: str) -> Found:
    """int4 made on the spot, and again from the cache; what loads first (libraries) is loaded before."""
    _ = ground.baseline
    measurements = list[dict[str, Any]]()
    for at in range(ground.rounds):
        for way in ("on the spot", "again"):
            began, cpu_began = perf_counter(), process_time()
            ours.load("int4", ground.model, ground.work / f"load-{at}", RECIPES["int4"])
            measurements.append({"load": way, "seconds": perf_counter() - began, "cpu": process_time() - cpu_began})
    times = {way: [one["seconds"] for one in measurements if one["load"] == way] for way in ("on the spot", "again")}
    middle = {way: median(seconds) for way, seconds in times.items()}
    met = middle["on the spot"] <= LOAD and middle["again"] <= LOAD_AGAIN
    spread = {way: [min(seconds), max(seconds)] for way, seconds in times.items()}
    return measurements, REAL_SIZE.row(id, middle, met=met, spread=spread)


def _fastest(call: Callable[[], object], rounds: int) -> float:
    call()
    seconds = list[float]()
    for _ in range(3 * rounds):
        began = perf_counter()
        call()
        seconds.append(perf_counter() - began)
    return min(seconds)


def _multiply_rate() -> float:
    """float32 multiply-adds a second of the threads that torch may use, in registers."""
    steps, threads = 1_000_000, torch.get_num_threads()
    return fuse(steps, threads) / _fastest(partial(fuse, steps, threads), 1)


def _read_rate() -> float:
    """Bytes a second that the same threads read."""
    block = torch.zeros(2**25)
    seconds = _fastest(partial(read, block, torch.get_num_threads()), 1)
    return block.nbytes / seconds
