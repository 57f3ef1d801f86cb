"""Benchmark `real-size`: a real chat model on two cores, and the products of the shapes that people have.

The chat model is SmolLM2-135M-Instruct (vocabulary 49,152), see `first_hour.chat_model`; its cases are the first turns
of MT-Bench. Models of 0.5B and 1.5B have random weights (`real_shapes`). Contenders answer in turns. A product's rate
is told as a share of what the same threads multiply in registers or read from memory, whichever takes it longer.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import torch

from qualgate.engine.choice import threads_of_kernels
from qualgate.engine.dense import head_of
from qualgate.engine.drift import LOGITS_AT_ONCE
from qualgate.quant.packing import quantize_weight
from qualgate.quant.recipes import parse_recipe
from qualgate.records.arms import Arithmetic
from qualgate_kernels import cpu, dispatch
from qualgate_kernels.cpu.library import fuse, read, threaded
from qualgate_kernels.dense import prepare_dense
from tests.benchmarks import llama_peer, ours, peers, real_shapes, vllm_peer
from tests.benchmarks.goals import REAL_SIZE
from tests.benchmarks.race import race, shown, standing
from tests.benchmarks.real_ground import (
    AT_LEAST,
    KIND,
    LOAD,
    LOAD_AGAIN,
    OF_COUNTED,
    RECIPES,
    Found,
    Ground,
    endless,
    row,
)
from tests.verification.first_hour.chat_model import chat_model
from tests.verification.references import served_memory
from tests.verification.references.agreement import NoReference
from tests.verification.shared import DATA

FORMATS = {"bfloat16": None, "int8": RECIPES["int8"], "int4": RECIPES["int4"]}
SHAPES = ((3072, 576), (576, 1536), (9728, 896), (896, 4864), (17920, 1536), (6144, 4096))  # of 135M to 8B, [N, K]
ROWS = (8, 12, 64)
HEADS = ((49_152, 576), (151_936, 896))  # vocabulary, width
POSITIONS = 768


def run(quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """All rows, or those of `only`; quick: 3 cases, two rounds."""
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
            "memory": partial(_memory, ground),
        }
        parts |= {id: partial(_llama, ground) for id in REAL_SIZE.goals if id.startswith("llama_")}
        parts |= {id: partial(real_shapes.plain, ground) for id in ("plain_05b", "plain_15b")}
        parts |= {id: partial(real_shapes.int4, ground) for id in ("int4_05b", "bf16_int4_135m")}

        def missing(id: str) -> str:
            peer = {"vllm": vllm_peer.missing, "llama": llama_peer.missing}.get(id.split("_")[0], str)
            return "" if id in ("products", "drift") else why or peer()

        rounds, rows = vllm_peer.measured_rows(REAL_SIZE, parts, only, missing)
    few = f"{ground.rounds} rounds of {ground.cases} cases" if quick else None
    return REAL_SIZE.result(rounds=[{"threads": torch.get_num_threads()}, *rounds], rows=rows, few=few)


def _plain(ground: Ground, id: str) -> Found:
    model = peers.load_transformers(peers.write_dequantized(ground.model, None, ground.work, ground.work / "floats"))
    peer, _ = peers.Transformers(model, ground.baseline.stop_ids, ground.prompts).at_best("generate", (8, 16))
    rounds = race(id, {"ours": ours.plain(ground.baseline, ground.prompts), "generate": peer}, [KIND], ground.rounds)
    return shown(id, rounds), row(id, standing(rounds, "ours", "generate"))


def _vllm(ground: Ground, id: str) -> Found:
    with vllm_peer.serving(ground.model, "float32", ground.prompts, ground.work) as vllm:
        contenders = {"ours": ours.plain(ground.baseline, ground.prompts), "vllm": vllm.contender}
        rounds = race(id, contenders, [KIND], ground.rounds)
    return shown(id, rounds), row(id, standing(rounds, "ours", "vllm"))


def _drafted(ground: Ground, id: str) -> Found:
    """With drift, which is measured at each token of the baseline's answers, against plain decoding without it; beside
    it with the drift of every fourth answer (`generation.drift: 0.25`)."""
    name = id.removeprefix("drafted_")
    arm = ours.load(name, ground.model, ground.work / "cache", RECIPES[name])
    quarter = [replace(one, weighed=at % 4 == 0) for at, one in enumerate(ground.prompts[KIND])]
    contenders = {"plain": ours.plain(arm, ground.prompts)}
    for way, prompts in {"drafted": ground.prompts, "quarter": {KIND: quarter}}.items():
        left = ground.work / f"{id}-{way}" / "artifacts"
        ours.leave_answers(ground.baseline, prompts, left)
        contenders[way] = ours.drafted(arm, prompts, left)
    rounds = race(id, contenders, [KIND], ground.rounds)
    beside = standing(rounds, "quarter", "plain")
    return shown(id, rounds), row(id, standing(rounds, "drafted", "plain")) | {"quarter": beside.shown}


def _llama(ground: Ground, id: str) -> Found:
    """llama.cpp rounds activations to 8 bits, so it may say something else: how many tokens are equal is told.

    Several rows count as served, with float32's ratio beside; one row counts in float32.
    """
    name, _, count = id.removeprefix("llama_").rpartition("_")
    recipe, file = llama_peer.RECIPES[name], ground.work / f"{name}.gguf"
    if not file.exists():
        llama_peer.write_gguf(ground.model, recipe, ground.work / "cache", file)
    every = ground.prompts[KIND]
    prompts = ground.prompts if count != "1" else {str(at): [one] for at, one in enumerate(every[: ground.singles])}
    ways: dict[str, Arithmetic] = {"float32": "float32"} if count == "1" else {"float32": "float32", "served": "served"}
    contenders = {
        way: ours.plain(endless(ours.load(way, ground.model, ground.work / "cache", recipe, arithmetic=how)), prompts)
        for way, how in ways.items()
    }
    with llama_peer.serving(file, prompts, int(count), ground.work) as llama:
        rounds = race(id, {**contenders, "llama": llama.contender}, [*prompts], ground.rounds)
    stood = {way: standing(rounds, way, "llama") for way in ways}
    counted = [*ways][-1]
    mine = stood[counted]
    spread = [min(mine.ratios), max(mine.ratios)]
    more = {
        "arithmetic": counted,
        "against": {way: one.ratio for way, one in stood.items()},
        "equal_tokens": {way: llama_peer.equal_tokens(rounds, way, "llama") for way in ways},
        "xllamacpp": llama.version,
    }
    met = mine.ratio >= AT_LEAST[id]
    return shown(id, rounds), REAL_SIZE.row(id, mine.ratio, met=met, spread=spread) | mine.shown | more


def _memory(ground: Ground, id: str) -> Found:
    """The most that a process held while it loaded a model and answered 12 prompts at once, to the weights and the keys
    and values that are counted for it; the highest is the row's. int4 is made on the spot."""
    measurements = list[dict[str, Any]]()
    for size, folder in {"135m": ground.model, "05b": real_shapes.folder_of(ground, "05b")}.items():
        for form, recipe in {"bfloat16": None, "int4": RECIPES["int4"]}.items():
            held = served_memory.held_by(folder, arithmetic="float32", rows=real_shapes.AT_ONCE, recipe=recipe)
            measurements.append({"memory": f"{size} {form}", **asdict(held)})
    ratios = {
        one["memory"]: {when: one[when] / one["counted"] for when in ("loading", "answering")} for one in measurements
    }
    most = [max(one.values()) for one in ratios.values()]
    met = max(most) <= OF_COUNTED
    return measurements, REAL_SIZE.row(id, max(most), met=met, spread=[min(most), max(most)]) | {"models": ratios}


def _products(ground: Ground, id: str) -> Found:
    """The lowest share is the row's."""
    measurements = list[dict[str, Any]]()
    for name, recipe in FORMATS.items():
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
