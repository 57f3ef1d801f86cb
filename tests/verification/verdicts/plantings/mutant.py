"""A mutant: a change of the model's folder, a recipe, or a worker that does one thing wrong.

Nothing here is a hook of the product: whatever a worker does wrong is patched around the product's own functions, for
the length of one job.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from qualgate.errors import InfrastructureError, UsageError
from qualgate.records import ArmSpec, Job, JobFailure, JobResult, QuantizeRecipe
from qualgate.refmodel import PATH
from qualgate.workers.unit import WorkerSettings

ANSWERS, CALLS = ("json_extract",), ("tool_calls",)  # evalsets of short answers
KV, PLAIN = "@kv", "@plain"  # arms without the part: no mutated cache, no draft
Outcome = JobResult | JobFailure


class Worker:
    """What `workers.unit.serve` does with a job, in this process."""

    def __init__(self, settings: WorkerSettings) -> None:
        self.settings, self.arm = settings, None

    def load(self, spec: ArmSpec) -> None:
        from qualgate.engine.load import load_arm

        if self.arm is None or self.arm.spec != spec:
            sampling = self.settings.sampling
            self.arm = load_arm(spec, self.settings.cache_dir, sampling, device=self.settings.device)

    def run(self, job: Job) -> Outcome:
        from qualgate.engine.job import run_job

        try:
            self.load(job.arm)
            assert self.arm is not None
            return run_job(self.arm, job)
        except UsageError:
            raise
        except (InfrastructureError, RuntimeError) as error:
            keys = tuple(prompt.key for prompt in job.prompts)
            return JobFailure(index=job.index, arm=job.arm.name, keys=keys, error=str(error))


Serve = Callable[[Worker, Job], Outcome]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    what: str
    cause: str = ""  # the word for what is planted; "" = nothing is
    broken: bool = False  # an invariant is, whatever the answers are worth; else the answers of other seeds tell
    edit: Callable[[Path], None] | None = None  # of a copy of the model's folder
    recipe: QuantizeRecipe | None = None
    dtype: str = "bfloat16"
    serve: Serve = Worker.run
    witness: str = ""  # the arm beside it that lacks the part; runs by `serve_witness`
    serve_witness: Serve | None = None
    sets: tuple[str, ...] = ANSWERS


def folder_of(mutant: Mutant, into: Path) -> Path:
    """The model's folder: the shipped one, or a copy with the edit."""
    if mutant.edit is None:
        return PATH
    into.mkdir(parents=True)
    for file in PATH.iterdir():
        if file.suffix == ".safetensors":
            (into / file.name).symlink_to(file)  # replaced, never written through
        elif file.suffix in (".json", ".jinja"):
            shutil.copy(file, into / file.name)
    mutant.edit(into)
    return into


def integer(bits: int, group: int, **more: Any) -> QuantizeRecipe:
    return QuantizeRecipe(method=f"int{bits}", group_size=group, **more)  # type: ignore[arg-type]
