from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from qualgate.engine.gpus import as_environment
from qualgate.errors import InfrastructureError, UsageError
from qualgate.pipeline.batches import in_turns
from qualgate.records import ArmSpec, Job, JobFailure, JobResult, Prompt, QuantizeRecipe, UnitKey
from qualgate.workers import pool
from qualgate.workers.pool import MAX_ATTEMPTS, Queue, run_jobs
from qualgate.workers.unit import WorkerSettings
from tests.command_line import forked_workers
from tests.workers import fake_worker

BASELINE = ArmSpec(name="baseline", model="m")
VARIANTS = tuple(
    ArmSpec(name=name, model="m", quantize=QuantizeRecipe(method=method, group_size=32))
    for name, method in (("a", "int8"), ("b", "int4"))
)


def job_of(arm: ArmSpec, index: int, size: int, artifact: str) -> Job:
    prompts = tuple(
        Prompt(key=UnitKey(arm.name, "set", f"{index}-{row}"), case_hash="h", token_ids=(1,), max_new_tokens=4)
        for row in range(size)
    )
    return Job(index=index, arm=arm, prompts=prompts, artifact=artifact, drafted=True)


def jobs(folder: Path, count: int = 5) -> list[Job]:
    return [job_of(arm, index, 3, str(folder / f"{index}")) for arm in (BASELINE, *VARIANTS) for index in range(count)]


def told(folder: Path, **more) -> WorkerSettings:
    return WorkerSettings(cache_dir=str(folder), sampling={}, threads=1, device=more.pop("device", "cpu"), **more)


@pytest.fixture(autouse=True)
def forked():
    """Workers come from a process that has imported what they import; one is spawned where that is what is tested."""
    with forked_workers():
        yield


def run(folder: Path, body, workers: int = 2, every: list[Job] | None = None, job_seconds: float = 0.0, **options):
    settings = told(folder, job_seconds=job_seconds) if job_seconds else told(folder)
    return list(run_jobs(jobs(folder) if every is None else every, settings, workers, body=body, **options))


def units(outcomes) -> Counter:
    return Counter(completion.key for outcome in outcomes for completion in outcome.completions)


def every_unit(folder: Path) -> Counter:
    return Counter(prompt.key for job in jobs(folder) for prompt in job.prompts)


def failed(outcomes) -> set[tuple[str, int]]:
    return {(outcome.arm, outcome.index) for outcome in outcomes if isinstance(outcome, JobFailure)}


def test_each_worker_has_a_gpu_of_its_own_and_who_comes_for_a_dead_one_has_its(tmp_path, monkeypatch):
    def spawn(body, settings, environment):
        return SimpleNamespace(exitcode=None), environment["CUDA_VISIBLE_DEVICES"]

    monkeypatch.setattr(pool, "spawn", spawn)
    here = pool._Here(fake_worker.answering, told(tmp_path, device="cuda", gpus=("3", "GPU-7")))
    (dead, one), (_, other) = here.hire(2)
    dead.exitcode = -signal.SIGKILL
    assert (one, other, [gpu for _, gpu in here.hire(1)]) == ("3", "GPU-7", ["3"])


def test_a_spawned_worker_sees_its_gpu_and_ignores_ctrl_c_from_its_first_moment_and_nobody_else_does(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(pool, "START", "spawn")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-7,5")
    before = signal.getsignal(signal.SIGINT)
    process, pipe = pool.spawn(fake_worker.telling_of_itself, told(tmp_path), as_environment("GPU-7"))
    assert pipe.recv() == ("GPU-7", "PCI_BUS_ID", signal.SIG_IGN)
    process.join()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,GPU-7,5"
    assert signal.getsignal(signal.SIGINT) == before


def test_every_job_is_answered_once_and_variants_wait_for_their_baseline(tmp_path):
    outcomes = run(tmp_path, fake_worker.answering)
    assert all(isinstance(outcome, JobResult) for outcome in outcomes)
    assert units(outcomes) == every_unit(tmp_path)


def test_what_a_worker_handed_back_before_it_died_is_not_asked_again(tmp_path):
    every = [replace(job, artifact="") for job in jobs(tmp_path)]
    outcomes = run(tmp_path, fake_worker.answering_in_parts, every=every)
    assert (tmp_path / "died").exists()
    assert units(outcomes) == every_unit(tmp_path)


@pytest.mark.parametrize("body", [fake_worker.dying_once, fake_worker.dying_in_mid_answer])
def test_a_worker_killed_in_the_middle_of_a_job_loses_and_doubles_nothing(tmp_path, body):
    outcomes = run(tmp_path, body)
    assert (tmp_path / "died").exists()
    assert units(outcomes) == every_unit(tmp_path)


def test_a_case_that_kills_every_worker_is_set_apart_alone(tmp_path):
    outcomes = run(tmp_path, fake_worker.dying_on_a_case)
    lost = {key for outcome in outcomes if isinstance(outcome, JobFailure) for key in outcome.keys}
    assert lost == {UnitKey(arm, "set", "1-1") for arm in ("a", "b", "baseline")}
    answered = units(outcome for outcome in outcomes if isinstance(outcome, JobResult))
    assert set(answered.values()) == {1}
    assert answered.keys() | lost == {prompt.key for job in jobs(tmp_path) for prompt in job.prompts}


@pytest.mark.parametrize(
    ("body", "reason"),
    [(fake_worker.dying_at_start, "signal 9"), (fake_worker.broken_at_start, "ImportError: libcudart.so.13")],
)
def test_a_pool_whose_workers_all_die_at_start_ends_at_once_with_the_reason(tmp_path, body, reason):
    with pytest.raises(InfrastructureError, match=f"no worker starts: {MAX_ATTEMPTS} in a row .*{reason}"):
        run(tmp_path, body)
    assert len((tmp_path / "started").read_text()) <= MAX_ATTEMPTS + 1, "not three for each of fifteen jobs"


def test_a_pool_in_which_no_job_can_be_run_ends_at_the_second(tmp_path):
    with pytest.raises(InfrastructureError, match="no worker has answered anything: each of two jobs killed 3 of them"):
        run(tmp_path, fake_worker.dying_on_every_job, workers=1)
    assert len((tmp_path / "started").read_text()) == 2 * MAX_ATTEMPTS


@pytest.mark.proof
def test_a_worker_that_hangs_is_ended_and_loses_and_doubles_nothing(tmp_path):
    outcomes = run(tmp_path, fake_worker.hanging_once, job_seconds=20)
    assert (tmp_path / "hung").exists()
    assert units(outcomes) == every_unit(tmp_path)


@pytest.mark.proof
def test_a_job_on_which_every_worker_hangs_becomes_a_failure_that_names_the_timeout(tmp_path):
    outcomes = run(tmp_path, fake_worker.hanging_always, job_seconds=4)
    assert failed(outcomes) == {("a", 2), ("b", 2), ("baseline", 2)}
    assert "no answer within 4 s: workers.job_timeout" in next(o.error for o in outcomes if isinstance(o, JobFailure))


@pytest.mark.proof
def test_what_a_server_is_left_alone_for_is_not_the_jobs_time_and_is_told(tmp_path):
    lines: list[str] = []
    [first, *_] = jobs(tmp_path)
    outcomes = run(tmp_path, fake_worker.left_alone, 1, [first], job_seconds=6, tell=lines.append)
    assert [type(one) for one in outcomes] == [JobResult]
    assert lines == [f"job {first.index} waits"]


COORDINATOR = """
import sys
from pathlib import Path
from qualgate.workers.pool import run_jobs
from tests.workers import fake_worker
from tests.workers.test_pool import jobs
from qualgate.workers.unit import WorkerSettings

if __name__ == "__main__":
    folder = Path(sys.argv[1])
    settings = WorkerSettings(cache_dir=str(folder), sampling={}, threads=1, device="cpu")
    list(run_jobs(jobs(folder), settings, 1, body=fake_worker.hanging_once))
"""


def test_a_worker_ends_with_a_coordinator_that_is_killed_in_the_middle_of_a_job(tmp_path):
    (tmp_path / "coordinator.py").write_text(COORDINATOR)
    there = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    with subprocess.Popen([sys.executable, tmp_path / "coordinator.py", tmp_path], env=there) as coordinator:
        worker = int(until(lambda: (tmp_path / "hung").exists() and (tmp_path / "hung").read_text()))
        coordinator.kill()
    until(lambda: ended(worker))


def ended(pid):
    try:
        return not Path(f"/proc/{pid}/cmdline").read_bytes()  # a zombie's is empty
    except (FileNotFoundError, ProcessLookupError):  # it may go while it is looked at
        return True


def until(said):
    """What it says once it says something: looked for, as nobody tells."""
    end = time.monotonic() + 60
    while not (found := said()):
        assert time.monotonic() < end
        os.sched_yield()
    return found


def test_a_failed_baseline_job_fails_the_variants_jobs_that_needed_its_artifact(tmp_path):
    outcomes = run(tmp_path, fake_worker.failing)
    failures = {(o.arm, o.index): o.error for o in outcomes if isinstance(o, JobFailure)}
    assert set(failures) == {("baseline", 1), ("a", 1), ("b", 1)}
    assert failures["a", 1] == "the baseline's job 1 failed: NaN logits"


def test_a_mistake_of_the_user_found_by_a_worker_stops_the_run_with_its_message(tmp_path):
    with pytest.raises(UsageError, match="do not fit its config"):
        run(tmp_path, fake_worker.refusing)


def test_a_stop_request_ends_the_run_between_jobs_and_keeps_what_is_finished(tmp_path):
    finished: list[JobResult | JobFailure] = []
    stop = lambda: len(finished) >= 4  # noqa: E731
    for outcome in run_jobs(jobs(tmp_path), told(tmp_path), 2, stop=stop, body=fake_worker.answering):
        finished.append(outcome)
    assert 4 <= len(finished) < 15


def test_jobs_that_are_needed_no_more_are_dropped_and_the_others_still_run(tmp_path):
    settled, outcomes, late = set(), [], 0
    needed = lambda job: job.arm.name not in settled  # noqa: E731
    every = [replace(job, stage=job.index) for job in jobs(tmp_path)]
    for outcome in run_jobs(every, told(tmp_path), 2, body=fake_worker.answering, needed=needed):
        outcomes.append(outcome)
        late += outcome.arm in settled
        if (outcome.arm, outcome.index) == ("a", 1):
            settled.add("a")
    done = Counter(outcome.arm for outcome in outcomes)
    assert (done["baseline"], done["b"]) == (5, 5)
    assert late <= 1, "what was under way with the other worker"
    assert run(tmp_path, fake_worker.answering, every=every, needed=lambda job: False) == []


def test_a_stage_is_handed_out_before_the_next_whatever_a_worker_has_loaded(tmp_path):
    queue = Queue([replace(job, stage=job.index) for job in jobs(tmp_path, 3)])
    taken, loaded = [], None
    while hand := queue.take(loaded, {}):
        [job] = hand
        queue.finished(job)
        taken.append((job.stage, job.arm.name))
        loaded = job.arm.name
    assert [stage for stage, _ in taken] == [0, 0, 0, 1, 1, 1, 2, 2, 2]


def turns(folder: Path, count: int = 5) -> list[Job]:
    return in_turns([replace(job, timed=True, drafted=False) for job in jobs(folder, count)], seed=3)


def ran(folder: Path, every: list[Job], body=fake_worker.answering) -> list[tuple[str, int]]:
    return [(found.arm, found.index) for found in run(folder, body, 1, every)]


def test_one_worker_takes_a_turn_whole_and_in_its_order_whoever_is_first(tmp_path):
    every = turns(tmp_path, 24)
    queue = Queue(list(every))
    hands = [queue.take("baseline", {}) for _ in range(24)]
    assert [[(job.stage, len(hand)) for job in hand] for hand in hands] == [[(turn, 3)] * 3 for turn in range(24)]
    assert [job for hand in hands for job in hand] == every
    assert queue.take("baseline", {}) == []
    assert ran(tmp_path, every) == [(job.arm.name, job.index) for job in every]


@pytest.mark.parametrize("body", [fake_worker.dying_once, fake_worker.dying_in_mid_answer])
def test_a_worker_killed_in_a_turn_loses_and_doubles_nothing_of_it(tmp_path, body):
    every = turns(tmp_path)
    assert Counter(ran(tmp_path, every, body)) == Counter((job.arm.name, job.index) for job in every)
    assert (tmp_path / "died").exists()


def test_a_first_turn_that_kills_every_worker_fails_and_the_others_run(tmp_path):
    every = sorted(turns(tmp_path, 3), key=lambda job: (job.index, not job.arm.is_baseline))
    every = [replace(job, stage=job.index) for job in every]
    outcomes = run(tmp_path, fake_worker.waiting_for_the_baseline, 1, every)
    assert failed(outcomes) == {(name, 0) for name in ("baseline", "a", "b")}
    assert len(outcomes) == 9


def test_one_worker_and_no_jobs_are_fine(tmp_path):
    assert run(tmp_path, fake_worker.answering, every=[]) == []
    assert len(run(tmp_path, fake_worker.answering, 1, jobs(tmp_path, 2))) == 6


def test_a_worker_hired_ahead_is_taken_by_the_next_pool_and_one_that_nobody_takes_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(pool, "serve", fake_worker.answering)
    with pool.hired_ahead():
        [(wanted, _)] = pool._AHEAD.get()
        with pool.hired_ahead():
            assert [one for one, _ in pool._AHEAD.get()] == [wanted], "one waits already"
            outcomes = run(tmp_path, fake_worker.answering)
        assert (pool._AHEAD.get(), wanted.exitcode) == ([], 0)
    with pool.hired_ahead():
        [(unwanted, _)] = pool._AHEAD.get()
    assert unwanted.exitcode == -signal.SIGKILL
    assert units(outcomes) == every_unit(tmp_path)
