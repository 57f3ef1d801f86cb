"""Worker bodies for the pool's tests: they answer without a model, and fail in the ways real ones do."""

from __future__ import annotations

import os
import signal
import struct
from collections.abc import Iterator
from dataclasses import replace
from multiprocessing.connection import Connection
from pathlib import Path
from threading import Event

from qualgate.records import ArmFootprint, ArmIdentity, Completion, Job, JobFailure, JobResult
from qualgate.workers.unit import READY, STORED, Refused, Rest, WorkerSettings

IDENTITY = ArmIdentity(weights="w", config="c", tokenizer="t", template="p", sampling="s", engine="e")
FOOTPRINT = ArmFootprint(bytes_on_disk=1, bytes_in_memory=1, quantized_bytes=0, effective_bits=16.0)


def received(pipe: Connection) -> Iterator[Job]:
    """The jobs of every hand, one by one, until the pipe closes."""
    pipe.send(READY)
    while True:
        try:
            yield from pipe.recv()
        except EOFError:
            return


def result_of(job: Job) -> JobResult:
    completions = tuple(
        Completion(key=one.key, case_hash=one.case_hash, token_ids=(1,), text=one.key.case_id, finish_reason="eos",
                   prompt_tokens=len(one.token_ids), logprobs=(0.0,), margins=(1.0,), ttft=0.1, e2e=0.1)
        for one in job.prompts
    )  # fmt: skip
    return JobResult(index=job.index, arm=job.arm.name, identity=IDENTITY, footprint=FOOTPRINT, completions=completions)


def first_time(settings: WorkerSettings, name: str, text: str = "") -> bool:
    """Whether nobody came here before; leaves a file of this name."""
    try:
        with (Path(settings.cache_dir) / name).open("x") as file:
            file.write(text)
    except FileExistsError:
        return False
    return True


def answering(pipe: Connection, settings: WorkerSettings) -> None:
    """Answers every job; the baseline's leave a file where their artifact would be, and variants insist on it, unless
    they take turns."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for job in received(pipe):
        if job.arm.is_baseline:
            Path(job.left_at).write_text("made")
        elif not job.timed:
            assert Path(job.artifact).is_file(), "a variant's job ran before its baseline's"
        pipe.send(result_of(job))


def answering_in_parts(pipe: Connection, settings: WorkerSettings) -> None:
    """Hands back each answer alone, and waits until it is stored; the first worker dies behind its second."""
    for job in received(pipe):
        for number, prompt in enumerate(job.prompts):
            pipe.send(replace(result_of(replace(job, prompts=(prompt,))), part=True))
            assert pipe.recv() == STORED
            if number == 1 and first_time(settings, "died"):
                os.kill(os.getpid(), signal.SIGKILL)
        pipe.send(result_of(replace(job, prompts=())))


def dying_once(pipe: Connection, settings: WorkerSettings) -> None:
    """Kills itself in the middle of job 2, the first time anyone runs it."""
    for job in received(pipe):
        if job.index == 2 and first_time(settings, "died"):
            os.kill(os.getpid(), signal.SIGKILL)
        pipe.send(result_of(job))


def dying_on_a_case(pipe: Connection, settings: WorkerSettings) -> None:
    """The baseline's case 1-1 kills whoever takes it, in whatever batch; variants insist on their artifact."""
    for job in received(pipe):
        if job.arm.is_baseline:
            if any(prompt.key.case_id == "1-1" for prompt in job.prompts):
                os.kill(os.getpid(), signal.SIGKILL)
            Path(job.left_at).write_text(" ".join(prompt.key.case_id for prompt in job.prompts))
        else:
            made = Path(job.artifact).read_text().split()
            assert made == [prompt.key.case_id for prompt in job.prompts], "it is of the batch that counts"
        pipe.send(result_of(job))


def waiting_for_the_baseline(pipe: Connection, settings: WorkerSettings) -> None:
    """As a worker does with a turn: variants before their baseline wait for it. The baseline's job 0 kills."""
    pipe.send(READY)
    while True:
        try:
            jobs = pipe.recv()
        except EOFError:
            return
        early = [job for place, job in enumerate(jobs) if any(one.arm.is_baseline for one in jobs[place + 1 :])]
        for job in (*(job for job in jobs if job not in early), *early):
            if job.arm.is_baseline and job.index == 0:
                os.kill(os.getpid(), signal.SIGKILL)
            pipe.send(result_of(job))


def dying_in_mid_answer(pipe: Connection, settings: WorkerSettings) -> None:
    """Announces a message of 1000 bytes for job 2, sends 4 of them and dies, the first time anyone runs it."""
    for job in received(pipe):
        if job.index == 2 and first_time(settings, "died"):
            os.write(pipe.fileno(), struct.pack("!i", 1000) + b"half")
            os.kill(os.getpid(), signal.SIGKILL)
        pipe.send(result_of(job))


def telling_of_itself(pipe: Connection, settings: WorkerSettings) -> None:
    """Says what it has inherited: its GPU, and what it makes of Ctrl-C."""
    pipe.send((os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"], signal.getsignal(signal.SIGINT)))


def hanging_once(pipe: Connection, settings: WorkerSettings) -> None:
    """Says nothing more in job 2, the first time anyone runs it."""
    for job in received(pipe):
        if job.index == 2 and first_time(settings, "hung", str(os.getpid())):
            signal.pause()
        pipe.send(result_of(job))


def hanging_always(pipe: Connection, settings: WorkerSettings) -> None:
    for job in received(pipe):
        if job.index == 2:
            signal.pause()
        pipe.send(result_of(job))


def left_alone(pipe: Connection, settings: WorkerSettings) -> None:
    """Says before each job that its server wants to be left alone for a minute, and is silent for some seconds."""
    for job in received(pipe):
        pipe.send(Rest(60.0, f"job {job.index} waits"))
        Event().wait(3 * settings.job_seconds)
        pipe.send(result_of(job))


def failing(pipe: Connection, settings: WorkerSettings) -> None:
    """The baseline's job 1 fails in the machinery."""
    for job in received(pipe):
        if job.index == 1 and job.arm.is_baseline:
            pipe.send(JobFailure(index=1, arm=job.arm.name, keys=tuple(p.key for p in job.prompts), error="NaN logits"))
        else:
            pipe.send(result_of(job))


def refusing(pipe: Connection, settings: WorkerSettings) -> None:
    pipe.recv()
    pipe.send(Refused("the model's tensors do not fit its config"))


def dying_at_start(pipe: Connection, settings: WorkerSettings) -> None:
    """Counts itself in, and is killed before it says that it is ready."""
    _count(settings)
    os.kill(os.getpid(), signal.SIGKILL)


def broken_at_start(pipe: Connection, settings: WorkerSettings) -> None:
    _count(settings)
    raise ImportError("libcudart.so.13: cannot open shared object file")


def dying_on_every_job(pipe: Connection, settings: WorkerSettings) -> None:
    """Is ready, and killed by whatever it is given, as by a model that memory does not hold."""
    for _ in received(pipe):
        _count(settings)
        os.kill(os.getpid(), signal.SIGKILL)


def _count(settings: WorkerSettings) -> None:
    with (Path(settings.cache_dir) / "started").open("a") as file:
        file.write("x")
