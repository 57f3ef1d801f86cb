"""What benchmark `decode` measures of this engine: whole jobs, as a worker runs them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from qualgate.engine.device import Device
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.engine.loaded import LoadedArm
from qualgate.pipeline.batches import batches
from qualgate.quant.recipes import parse_recipe
from qualgate.records import ArmSpec, Completion, Job, Prompt
from qualgate.records.arms import Arithmetic
from tests.benchmarks.race import Contender

Jobs = dict[str, list[tuple[Job, list[int]]]]  # kind → each of its jobs, and where its prompts stand among the kind's


def load(
    name: str,
    model: str | Path,
    cache: str | Path,
    recipe: object = None,
    device: Device = "cpu",
    arithmetic: Arithmetic = "float32",
) -> LoadedArm:
    """An arm of `model`. recipe: as in a gate file; None runs the folder as it is."""
    quantize = None if recipe is None else parse_recipe(recipe)
    spec = ArmSpec(name=name, model=str(model), quantize=quantize, arithmetic=arithmetic)
    return load_arm(spec, cache, {}, device=device)


def jobs(arm: ArmSpec, prompts: Mapping[str, Sequence[Prompt]], artifacts: Path | None, *, drafted: bool) -> Jobs:
    """The jobs of an arm, laid out as a run's. artifacts: where the baseline leaves its answers, which a variant
    weighs itself against (and drafts from); None for neither."""
    found: Jobs = {}
    for kind, mine in prompts.items():
        named = [replace(prompt, key=replace(prompt.key, arm=arm.name)) for prompt in mine]
        found[kind] = [
            (
                Job(
                    index=index,
                    arm=arm,
                    prompts=tuple(named[at] for at in places),
                    artifact="" if artifacts is None else str(artifacts / f"{kind}-{index}.safetensors"),
                    drafted=drafted,
                ),
                places,
            )
            for index, places in enumerate(batches(named))
        ]
    return found


def leave_answers(baseline: LoadedArm, prompts: Mapping[str, Sequence[Prompt]], artifacts: Path) -> None:
    """The baseline's own jobs: what a run has made before its variants come."""
    for of_kind in jobs(baseline.spec, prompts, artifacts, drafted=False).values():
        for job, _ in of_kind:
            run_job(baseline, job)


def plain(arm: LoadedArm, prompts: Mapping[str, Sequence[Prompt]]) -> Contender:
    """Every token decoded, nothing measured beside it. It says token ids."""
    mine = jobs(arm.spec, prompts, None, drafted=False)
    return Contender(answer=lambda kind: [one.token_ids for one in answered(arm, mine[kind])])


def drafted(arm: LoadedArm, prompts: Mapping[str, Sequence[Prompt]], artifacts: Path) -> Contender:
    """From the baseline's answers, drift measured on the way. It says token ids."""
    mine = jobs(arm.spec, prompts, artifacts, drafted=True)
    return Contender(answer=lambda kind: [one.token_ids for one in answered(arm, mine[kind])])


def drafted_texts(arm: LoadedArm, prompts: Mapping[str, Sequence[Prompt]], artifacts: Path) -> Contender:
    """The same; it says texts."""
    mine = jobs(arm.spec, prompts, artifacts, drafted=True)
    return Contender(answer=lambda kind: [one.text for one in answered(arm, mine[kind])])


def answered(arm: LoadedArm, of_kind: Iterable[tuple[Job, list[int]]]) -> list[Completion]:
    """The completions of jobs, in the order of the kind's prompts."""
    found: dict[int, Completion] = {}
    for job, places in of_kind:
        found |= dict(zip(places, run_job(arm, job).completions, strict=True))
    return [found[at] for at in range(len(found))]
