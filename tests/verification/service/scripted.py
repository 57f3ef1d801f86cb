"""`qualgate` whose workers answer by what a case is called, in a few ms, and which dies where it is told to:
python -m tests.verification.service.scripted COMMAND ...       all else is the program's own code.

What the environment says: SCRIPTED_FOLDER, where notes between processes lie; SCRIPTED_DIES, at which point a process
kills itself, once; SCRIPTED_POISON, the case that kills every worker; SCRIPTED_HOURS, by how much the clocks of this
process are wrong; SCRIPTED_BYTES, beyond which no file of it grows; SCRIPTED_SECONDS, how long a job takes.
"""

from __future__ import annotations

import hashlib
import os
import pickle
import resource
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from importlib import import_module
from pathlib import Path
from typing import Any

from qualgate.records import ArmFootprint, ArmIdentity, Completion, Drift, Job, JobResult, Prompt
from qualgate.records.identity import write_sealed
from qualgate.workers.unit import READY, WorkerSettings

POINTS = ("after generation", "before commit", "after commit")
ROWS, SECONDS = 16, "0.03"  # of a job
FOOTPRINT = ArmFootprint(bytes_on_disk=1, bytes_in_memory=1, quantized_bytes=0, effective_bits=16.0)


def answering(pipe: Any, settings: WorkerSettings) -> None:
    """A worker. The baseline leaves a sealed file where its artifact is to be."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    identities: dict[str, ArmIdentity] = pickle.loads(_note("identities").read_bytes())
    pipe.send(READY)
    while True:
        try:
            jobs: tuple[Job, ...] = pipe.recv()
        except EOFError:
            return
        for job in jobs:
            if os.environ.get("SCRIPTED_POISON") in {prompt.key.case_id for prompt in job.prompts}:
                os.kill(os.getpid(), signal.SIGKILL)
            time.sleep(float(os.environ.get("SCRIPTED_SECONDS", SECONDS)))  # the time that the model takes
            if job.arm.is_baseline:
                write_sealed(Path(job.artifact), b"made")
            pipe.send(_result(job, identities[job.arm.name]))


def _result(job: Job, identity: ArmIdentity) -> JobResult:
    done = tuple(_completion(prompt) for prompt in job.prompts)
    drifts = [
        Drift(key=one.key, kl=(0.001,), top1_agreement=1.0, first_divergence=None, length_ratio=1.0) for one in done
    ]
    return JobResult(
        index=job.index,
        arm=job.arm.name,
        identity=identity,
        footprint=FOOTPRINT,
        completions=done,
        drifts=() if job.arm.is_baseline else tuple(drifts),
    )


def _completion(prompt: Prompt) -> Completion:
    """Right for all but a few, by the unit's name alone."""
    key = prompt.key
    right = hashlib.sha256(f"{key.arm} {key.case_id}".encode()).digest()[0] > 6
    text = key.case_id if right else "no"
    numbers = {"token_ids": (1,), "logprobs": (-0.5,), "margins": (1.0,), "prompt_tokens": 3, "ttft": 0.1, "e2e": 0.2}
    return Completion(key=key, case_hash=prompt.case_hash, text=text, finish_reason="eos", **numbers)


def _note(name: str) -> Path:
    return Path(os.environ["SCRIPTED_FOLDER"]) / name


def die(point: str) -> None:
    """Here, if it is the point where this process is to, and nobody has died there yet."""
    if os.environ.get("SCRIPTED_DIES") == point and not _note(point).exists():
        _note(point).touch()
        os.kill(os.getpid(), signal.SIGKILL)


def _script() -> None:
    """Put the scripted parts where the program looks for its own."""
    from qualgate import run
    from qualgate.pipeline import batches, generating
    from qualgate.store import runs
    from qualgate.store.database import Store
    from qualgate.workers import pool

    plain = {"plan": run.make_plan, "jobs": generating.run_jobs, "record": runs.record, "write": Store.write}

    def make_plan(*args: Any) -> Any:
        plan = plain["plan"](*args)
        _note("identities").write_bytes(pickle.dumps(dict(plan.identities)))
        return plan

    def record(store: Store, run_id: str, *what: Any) -> None:
        die("after generation")
        Store.write = dying_write  # type: ignore[method-assign]
        plain["record"](store, run_id, *what)
        Store.write = plain["write"]  # type: ignore[method-assign]
        die("after commit")

    @contextmanager
    def dying_write(self: Store, run: str = "") -> Iterator[Any]:
        with plain["write"](self, run) as connection:
            yield connection
            die("before commit")

    batches.JOB_ROWS = ROWS
    run.make_plan, runs.record = make_plan, record
    body = import_module(__spec__.name).answering  # type: ignore[union-attr]  # a node of a cluster imports it by name
    generating.run_jobs = lambda *args, **more: plain["jobs"](*args, body=body, **more)
    pool.hired_ahead = nullcontext  # no engine is wanted


def _limit() -> None:
    if most := int(os.environ.get("SCRIPTED_BYTES", "0")):
        resource.setrlimit(resource.RLIMIT_FSIZE, (most, most))
    if hours := float(os.environ.get("SCRIPTED_HOURS", "0")):
        now: Callable[[], float] = time.time
        time.time = lambda: now() + 3600 * hours  # type: ignore[assignment]


if __name__ == "__main__":
    from qualgate.cli import main

    _script()
    _limit()
    main()
