"""Rows of a benchmark: llama.cpp's table, and what a stored baseline takes and certifies.

Measured on the reference model (its own answers to shipped cases, int8 and int4 held against them) and on a made model
head of 128,256 tokens and width 2,048, half of its positions peaked as answers of a trained model are.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from qualgate.drift.llama_table import compare, llama_table, render
from qualgate.drift.stored import AT_MOST, StoredBaseline, certify, store
from tests.verification.goals import SCORING
from tests.verification.references.llama_lines import SETS, chunks_of, printed

if TYPE_CHECKING:
    from qualgate.records import Prompt

VARIANTS = ("int8", "int4")
VOCABULARY, WIDTH = 128_256, 2048


def rows(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds, goal rows): 280 cases and 64 wide positions (quick: 70 and 8)."""
    lines = {name: _equal_lines(name) for name in SETS}
    measured = [_reference_model(10 if quick else 40), _wide(8 if quick else 64)]
    ratios = [one["llama_bytes"] / one["bytes"] for one in measured]
    errors = [variant["error_max"] for one in measured for variant in one["variants"].values()]
    held = all(variant["held"] for one in measured for variant in one["variants"].values())
    share = sum(lines.values()) / (34 * len(SETS))
    found = [
        ("drift.llama34", share, None, share == 1),
        ("drift.bytes", 1 / min(ratios), [1 / ratio for ratio in ratios], min(ratios) >= 50),
        ("drift.certified", max(errors), [min(errors), max(errors)], held and max(errors) <= AT_MOST),
    ]
    goals = [SCORING.row(id, value, spread=spread, met=met) for id, value, spread, met in found]
    return [{"lines_equal_of_34": lines}, *measured], goals


def _equal_lines(name: str) -> int:
    table = llama_table([compare(*chunk) for chunk in chunks_of(name)])
    lines = [line for line in render(table).splitlines() if line and not line.startswith("=")]
    return sum(one == other for one, other in zip(lines, printed(name), strict=True))


def _held(logits: NDArray, variants: dict[str, NDArray], stored: bytes, head: Any = None) -> dict[str, Any]:
    """What `stored` says of each variant, against the KL from both models' whole logits."""
    baseline, found = StoredBaseline.from_bytes(stored), {}
    for name, others in variants.items():
        certified = certify(baseline, others, head)
        truth = np.array([_kl(one, other) for one, other in zip(logits, others, strict=True)])
        found[name] = {
            "kl_true": float(truth.mean()),
            "kl": certified.mean[0],
            "error_mean": certified.mean[1],
            "error_max": float(certified.error.max()),
            "held": bool((np.abs(truth - certified.kl) <= certified.error).all()),
        }
    return {
        "positions": len(logits), "vocabulary": logits.shape[1], "hidden_positions": len(baseline.scale),
        "bytes": len(stored), "llama_bytes": len(logits) * (2 * logits.shape[1] + 8), "variants": found,
    }  # fmt: skip


def _kl(logits: NDArray, others: NDArray) -> float:
    log_p, log_q = (row.astype(np.float64) - float(row.max()) for row in (logits, others))
    log_p, log_q = (row - np.log(np.exp(row).sum()) for row in (log_p, log_q))
    return float(np.exp(log_p) @ (log_p - log_q))


def _reference_model(per_set: int) -> dict[str, Any]:
    import torch

    from qualgate.engine.artifact import read_artifact
    from qualgate.engine.job import run_job
    from qualgate.engine.load import load_arm
    from qualgate.engine.prompts import Renderer
    from qualgate.quant.model_files import read_files
    from qualgate.quant.recipes import parse_recipe
    from qualgate.records import ArmSpec, Job, Prompt, UnitKey
    from tests.verification.methods.quantize import held_out

    folder = str(files("qualgate") / "refmodel" / "weights")
    cases = held_out(per_set)
    prompts = tuple(
        Prompt(
            key=UnitKey("baseline", case.evalset, case.id), case_hash=case.hash, token_ids=token_ids,
            max_new_tokens=case.max_new_tokens,
        )
        for case, token_ids in zip(cases, Renderer(read_files(Path(folder))).render(cases), strict=True)
    )  # fmt: skip
    sampling = {"temperature": 0, "seed": 0, "repeats": 1}
    with tempfile.TemporaryDirectory() as room:
        arm = load_arm(ArmSpec(name="baseline", model=folder), room, sampling, device="cpu")
        job = Job(index=0, arm=arm.spec, prompts=prompts, artifact=f"{room}/answers.safetensors", drafted=False)
        run_job(arm, job)
        baseline = read_artifact(job, torch.device("cpu"))
        lengths = [len(answer) for answer in baseline.answers]
        logits = np.concatenate([baseline.logits(row, 0, length).numpy() for row, length in enumerate(lengths)])
        variants = {}
        for name in VARIANTS:
            spec = ArmSpec(name=name, model=folder, quantize=parse_recipe(name))
            variants[name] = _read(load_arm(spec, room, sampling, device="cpu"), prompts, baseline.answers)
    return {"model": "reference", **_held(logits, variants, store(logits).to_bytes())}


def _read(arm: Any, prompts: Sequence[Prompt], answers: Sequence[Sequence[int]]) -> NDArray:
    """float32 [all tokens, vocabulary]: the arm's logits at every position of the baseline's answers."""
    from qualgate.engine.choice import open_engine
    from qualgate.engine.request import Event, Read, Request

    said: list[list[NDArray]] = [[] for _ in answers]

    def take(event: Event) -> None:
        if isinstance(event, Read):
            for row, logits in zip(event.requests, event.logits.numpy(), strict=True):
                said[row].append(logits)

    asked = [
        Request(prompt=prompt.token_ids, answer=tuple(answer)) for prompt, answer in zip(prompts, answers, strict=True)
    ]
    with open_engine(arm.model, arm.choice) as engine:
        engine.run(asked, None, take)
    return np.concatenate([np.stack(rows) for rows in said])


def _wide(positions: int) -> dict[str, Any]:
    """A head of whole numbers, so that it takes a byte a weight; the variants' hidden states are off by noise."""
    random = np.random.default_rng(0)
    weight = random.integers(-127, 128, (VOCABULARY, WIDTH), dtype=np.int8)
    scale = 3.0 / (73.6 * WIDTH**0.5)  # logits of standard deviation 3

    def head(states: NDArray[np.float64]) -> NDArray[np.float64]:
        parts = (weight[start : start + 2**13].astype(np.float64) for start in range(0, VOCABULARY, 2**13))
        return np.concatenate([states @ part.T for part in parts], axis=1) * scale

    hidden = random.standard_normal((positions, WIDTH))
    tokens = random.integers(0, VOCABULARY, positions // 2)
    hidden[::2] += 0.1 * weight[tokens][: len(hidden[::2])] / 7  # towards one token
    logits = head(hidden).astype(np.float32)
    noisy = {
        name: head(hidden * (1 + noise * random.standard_normal(hidden.shape))).astype(np.float32)
        for name, noise in (("near", 0.003), ("far", 0.03))
    }
    return {
        "model": f"head of width {WIDTH}",
        **_held(logits, noisy, store(logits, hidden=hidden, head=head).to_bytes(), head),
    }
