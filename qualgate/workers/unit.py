"""What one worker process does: take a job, load its arm if it is not the one at hand, run it, send the result back.
Where times decide, an arm just loaded is warmed up first.

A worker never opens the store and never decides anything. It ignores Ctrl-C, because the coordinator
decides when to stop, and it ends by itself when the coordinator's end of the pipe closes.
"""

from __future__ import annotations

import logging
import os
import signal
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from qualgate.engine.device import Device
from qualgate.engine.load import one_line
from qualgate.errors import QualgateError, UsageError
from qualgate.records import Job, JobFailure


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What every worker of a pool is told once."""

    cache_dir: str  # where packed checkpoints are made and found
    sampling: dict[str, Any]
    threads: int
    device: Device


@dataclass(frozen=True, slots=True)
class Refused:
    """The job showed a mistake in what the user supplied: the run stops with this message (exit 64)."""

    message: str


def serve(pipe: Connection, settings: WorkerSettings) -> None:
    """Answer every job that arrives on `pipe` with a JobResult, a JobFailure or a Refused, until it closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.environ.update(HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
    # torch's idle threads would spin for milliseconds after each of its operations, on cores that our kernels want.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    import torch

    from qualgate.engine.job import run_job, warm_up
    from qualgate.engine.load import LoadedArm, load_arm

    torch.set_num_threads(settings.threads)
    arm: LoadedArm | None = None
    cold = True
    while True:
        try:
            job: Job = pipe.recv()
        except EOFError:
            return
        try:
            if arm is None or arm.spec != job.arm:
                arm = None  # freed before the next one is loaded: two arms at once would double the memory
                arm = load_arm(job.arm, settings.cache_dir, settings.sampling, device=settings.device)
                cold = True
            if cold and job.timed:
                warm_up(arm, job)
            cold = False
            answer: Any = run_job(arm, job)
        except UsageError as error:
            answer = Refused(str(error))
        except Exception as error:
            if not isinstance(error, QualgateError):
                logging.getLogger(__name__).warning("%s, job %d", job.arm.name, job.index, exc_info=True)
            reason = str(error) if isinstance(error, QualgateError) else one_line(error)
            answer = JobFailure(
                index=job.index, arm=job.arm.name, keys=tuple(prompt.key for prompt in job.prompts), error=reason
            )
        try:
            pipe.send(answer)
        except BrokenPipeError:
            return
