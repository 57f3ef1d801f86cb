"""Workers that end an answer elsewhere, hand in another's, read an older artifact, or fail."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any
from unittest.mock import patch

from qualgate.records import Job, JobResult
from qualgate.workers.pool import run_jobs
from qualgate.workers.unit import WorkerSettings
from tests.verification.verdicts.plantings.mutant import Mutant, Outcome, Serve, Worker, folder_of


def ending_at(*ids: int) -> Serve:
    def serve(worker: Worker, job: Job) -> Outcome:
        worker.load(job.arm)
        assert worker.arm is not None
        worker.arm = replace(worker.arm, stop_ids=ids)
        return worker.run(job)

    return serve


def short_budget(share: float) -> Serve:
    """share: of the reference answer's tokens, which a case's budget is made of."""

    def serve(worker: Worker, job: Job) -> Outcome:
        prompts = tuple(
            replace(prompt, max_new_tokens=max(1, int(share * (prompt.max_new_tokens - 16) / 1.5)))
            for prompt in job.prompts
        )
        return worker.run(replace(job, prompts=prompts, drafted=False))

    return serve


def answers_of(edit: Callable[[Path], None]) -> Serve:
    """Served from a cache that another model filled under this one's name."""
    others: dict[str, Worker] = {}

    def serve(worker: Worker, job: Job) -> Outcome:
        result = worker.run(job)
        folder = Path(job.artifact).parent / f"other-{job.arm.name}"
        if not folder.exists():
            folder_of(Mutant(what="", edit=edit), folder)
        other = others.setdefault(str(folder), Worker(worker.settings))
        said = other.run(replace(job, arm=replace(job.arm, model=str(folder))))
        assert isinstance(result, JobResult)
        assert isinstance(said, JobResult)
        return replace(result, completions=said.completions)

    return serve


def stale_artifact(change: Callable[[Job, Path], None]) -> Serve:
    """The baseline's artifact is an older one. change: makes it at the path."""

    def serve(worker: Worker, job: Job) -> Outcome:
        # In a folder of the same name: whole, and made for this place, as far as the file says.
        stale = Path(job.artifact).parent / f"stale-{job.arm.name}" / Path(job.artifact).parent.name
        stale.mkdir(parents=True, exist_ok=True)
        for head in Path(job.artifact).parent.glob("head-*"):
            shutil.copy(head, stale)
        stale /= Path(job.artifact).name
        change(job, stale)
        return worker.run(replace(job, artifact=str(stale)))

    return serve


def rewritten(change: Callable[[dict[str, str], dict[str, Any]], None]) -> Callable[[Job, Path], None]:
    """change: of the artifact's metadata and tensors, in place."""

    def rewrite(job: Job, stale: Path) -> None:
        from qualgate.quant.sealed_tensors import read_tensors, write_tensors

        tensors, metadata = read_tensors(Path(job.artifact))
        change(metadata, tensors)
        write_tensors(stale, tensors, metadata)

    return rewrite


def other_cases(metadata: dict[str, str], tensors: dict[str, Any]) -> None:
    metadata["cases"] = metadata["cases"].replace("-00", "-10")


def other_words(metadata: dict[str, str], tensors: dict[str, Any]) -> None:
    """Of a model that said one word of each answer otherwise."""
    start, rng = 0, random.Random(0)
    for length in tensors["lengths"].tolist():
        at = start + rng.randrange(max(1, length - 1))
        tensors["tokens"][at] = 3 + (tensors["tokens"][at] + 50) % 700
        start += length


def fenced(before: str, after: str) -> Serve:
    """A model that wraps each answer: said, weighed and teacher-forced as one that would.

    No such model ships, so its words are put into the record together with the drift they would have: it parts from the
    baseline at the first token.
    """

    def serve(worker: Worker, job: Job) -> Outcome:
        result = worker.run(job)
        assert isinstance(result, JobResult)
        assert worker.arm is not None
        encode = worker.arm.tokenizer.encode
        completions = []
        for said in result.completions:
            text = f"{before}{said.text}{after}"
            ids = (*encode(text, add_special_tokens=False), *said.token_ids[-1:])
            spread = [0.0] * len(ids)
            completions.append(
                replace(said, text=text, token_ids=ids, logprobs=tuple(spread), margins=tuple(spread),
                        baseline_accepted=0)
            )  # fmt: skip
        drifts = tuple(
            replace(
                drift, kl=(9.0, *drift.kl[1:]), first_divergence=0,
                top1_agreement=drift.top1_agreement * (1 - 1 / len(drift.kl)),
            )
            for drift in result.drifts
        )  # fmt: skip
        return replace(result, completions=tuple(completions), drifts=drifts)

    return serve


def _dies(pipe: Connection, settings: WorkerSettings) -> None:
    with contextlib.suppress(EOFError):  # the last one waits for a job that does not come
        pipe.recv()
    os._exit(9)


def worker_dies(worker: Worker, job: Job) -> Outcome:
    """In a real pool of one process, at the arm's first job, each time it is tried."""
    if job.index:
        return worker.run(job)
    (outcome,) = run_jobs([replace(job, artifact="")], worker.settings, 1, body=_dies)
    return outcome


def out_of_memory(worker: Worker, job: Job) -> Outcome:
    if job.index:
        return worker.run(job)

    def fails(*args: Any, **kwargs: Any) -> None:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    with (
        patch("qualgate.engine.packed.PackedEngine.run", fails),
        patch("qualgate.engine.padded.engine.PaddedEngine.run", fails),
    ):
        return worker.run(job)
