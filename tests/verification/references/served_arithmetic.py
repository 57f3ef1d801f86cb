"""Benchmark `served-arithmetic`: does `arithmetic: served` say what servers say, and is what they do not hold found?

vLLM answers on this CPU in bfloat16, and so do transformers and this engine; where two part, the margin of what this
engine says there is told in steps of bfloat16. Overflows are planted in tiny folders that float16 holds otherwise.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file

from qualgate.engine.choice import open_decoder, threads_of_kernels
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.engine.loaded import LoadedArm
from qualgate.engine.row_check import read, whole
from qualgate.errors import InfrastructureError
from qualgate.records import ArmSpec, Job, Prompt, UnitKey
from tests.benchmarks import vllm_peer
from tests.benchmarks.ours import plain
from tests.benchmarks.peers import Transformers, load_transformers
from tests.benchmarks.questions import KINDS, MODEL, asked
from tests.benchmarks.shape import told
from tests.tiny_models import save_tiny_model
from tests.verification.goals import SERVED_ARITHMETIC
from tests.verification.references.served_memory import Held, held

CASES, PER_SET, PER_SET_QUICK = 2_000, 286, 4
BATCH = 16  # of transformers' `generate`
FOLDERS, FOLDERS_QUICK = 20, 3
MOST_STEPS = 2.0
TO_FILE, OFF = 1.15, 0.05  # a peak to the model's file; what is counted, beside what was held
LOUDER = 2.0**14  # what is added to the residual stream, times this: norms take it out again

Answers = dict[str, list[tuple[int, ...]]]  # by kind, of each prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class Parting:
    """Where an answer leaves vLLM's. steps: of bfloat16 between this engine's two likeliest tokens there."""

    case: str
    at: int
    steps: float


def run(quick: bool) -> dict[str, Any]:
    """2,002 cases by four ways to compute; quick: 28. Without vLLM its rows are not measured."""
    broken, sound = overflows(FOLDERS_QUICK if quick else FOLDERS)
    part = f"{FOLDERS_QUICK} folders" if quick else None
    right = all(broken) and all(sound)
    overflow = SERVED_ARITHMETIC.row(
        "overflow", {"found": sum(broken), "answered": sum(sound), "of": len(sound)}, met=right, few=part
    )
    rows = [overflow, memory(held(1 if quick else 3))]
    if missing := vllm_peer.missing():
        of_vllm = [SERVED_ARITHMETIC.not_run(name, missing) for name in ("agrees", "margins")]
        return SERVED_ARITHMETIC.result(rounds=[], rows=[*of_vllm, *rows])
    with tempfile.TemporaryDirectory() as work:
        of_vllm, partings = agreement(asked(PER_SET_QUICK if quick else PER_SET), Path(work))
    return SERVED_ARITHMETIC.result(rounds=[asdict(one) for one in partings], rows=[*of_vllm, *rows])


def memory(found: Sequence[Held]) -> dict[str, Any]:
    """The row `memory`: the worst of the rounds."""
    measured = {"to_file": max(one.to_file for one in found), "counted_off": max(one.off for one in found)}
    met = measured["to_file"] <= TO_FILE and measured["counted_off"] <= OFF
    return SERVED_ARITHMETIC.row("memory", measured, met=met) | {"rounds": [asdict(one) for one in found]}


def agreement(prompts: Mapping[str, list[Prompt]], work: Path) -> tuple[list[dict[str, Any]], list[Parting]]:
    """The rows `agrees` and `margins`, and where answers part."""
    served, exact = (loaded(arithmetic, work) for arithmetic in ("served", "float32"))
    theirs = Transformers(load_transformers(MODEL, torch.bfloat16), served.stop_ids, prompts)
    found: dict[str, Answers] = {}
    with vllm_peer.serving(Path(MODEL), "bfloat16", prompts, work) as vllm:
        ways = {
            "vllm": vllm.contender.answer,
            "served": plain(served, prompts).answer,
            "transformers": lambda kind: theirs.generate(kind, BATCH),
            "float32": plain(exact, prompts).answer,
        }
        for way, answer in told("served-arithmetic", list(ways.items()), lambda item: item[0]):
            found[way] = {kind: [tuple(one) for one in answer(kind)] for kind in KINDS}
    cases = sum(map(len, prompts.values()))
    same = {way: sum(map(_agreeing, found[way].values(), found["vllm"].values())) for way in ways if way != "vllm"}
    partings, peers = (
        [one for kind in KINDS for one in parted(served, prompts[kind], found[way][kind], found["vllm"][kind])]
        for way in ("served", "transformers")
    )
    widest = max((one.steps for one in partings), default=0.0)
    few = f"{cases:,} cases" if cases < CASES else None
    agrees = SERVED_ARITHMETIC.row(
        "agrees", same | {"cases": cases}, met=same["served"] >= same["transformers"], few=few, by_chance=True
    )
    # Nobody computes bfloat16 as vLLM does but vLLM: how far a peer's tokens are ahead where it parts is told beside.
    margins = SERVED_ARITHMETIC.row("margins", widest, met=widest < MOST_STEPS, few=few) | {
        "steps": sorted(one.steps for one in partings), "steps_of_transformers": sorted(one.steps for one in peers),
    }  # fmt: skip
    return [agrees, margins], partings


def _agreeing(one: Sequence[tuple[int, ...]], other: Sequence[tuple[int, ...]]) -> int:
    return sum(mine == theirs for mine, theirs in zip(one, other, strict=True))


def loaded(arithmetic: Literal["float32", "served"], cache: Path) -> LoadedArm:
    """The reference model in bfloat16."""
    spec = ArmSpec(name="baseline", model=str(MODEL), dtype="bfloat16", arithmetic=arithmetic)
    return load_arm(spec, cache, {}, device="cpu")


def parted(
    arm: LoadedArm, prompts: Sequence[Prompt], ours: Sequence[tuple[int, ...]], theirs: Sequence[tuple[int, ...]]
) -> list[Parting]:
    """Of every answer that is not the same, where it first is not, and how far the arm's likeliest token is ahead."""
    found = []
    with threads_of_kernels(), open_decoder(arm.model, arm.choice) as (decoder, head):
        for prompt, mine, other in zip(prompts, ours, theirs, strict=True):
            if mine == other:
                continue
            at = next((at for at, pair in enumerate(zip(mine, other, strict=False)) if pair[0] != pair[1]), None)
            at = min(len(mine), len(other)) if at is None else at
            text = [[*prompt.token_ids, *mine[:at]]]
            first, second = read(decoder, head, text, whole(text))[0][-1].topk(2).values.tolist()
            found.append(Parting(case=prompt.key.case_id, at=at, steps=(first - second) / step_of(first)))
    return found


def step_of(number: float) -> float:
    """From a number of bfloat16 to the next larger one."""
    return float(2.0 ** (torch.frexp(torch.tensor(number)).exponent.item() - 8))


def overflows(count: int) -> tuple[list[bool], list[bool]]:
    """Of so many float16 folders, each drawn anew: whether an overflow planted in one is found, and whether it is
    answered without one."""
    broken, sound = [], []
    for seed in told("served-arithmetic, overflows", range(count)):
        with tempfile.TemporaryDirectory() as work:
            folder = save_tiny_model(Path(work) / "model", seed=seed, dtype="float16")
            sound.append(answers(folder))
            broken.append(not answers(louder(folder)))
    return broken, sound


def answers(folder: Path) -> bool:
    """Whether a job of the folder is answered, with nothing that would keep it from being approved."""
    spec = ArmSpec(name="baseline", model=str(folder), dtype="float16", arithmetic="served")
    arm = load_arm(spec, folder, {}, device="cpu")
    prompts = tuple(
        Prompt(
            key=UnitKey("baseline", "set", f"case-{at}"),
            case_hash=f"hash-{at}",
            token_ids=tuple(range(at, 5 * at, 3)),
            max_new_tokens=8,
        )
        for at in range(1, 9)
    )
    try:
        return not run_job(arm, Job(index=0, arm=spec, prompts=prompts, artifact="", drafted=False)).overflow
    except InfrastructureError:
        return False


def louder(folder: Path) -> Path:
    """The same numbers, but for what one layer adds to the residual stream."""
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.0.mlp.down_proj.weight"
    tensors[name] = (tensors[name].float() * LOUDER).clamp(-65504, 65504).to(tensors[name].dtype)
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    return folder
