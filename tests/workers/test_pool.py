from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.errors import InfrastructureError, UsageError
from qualgate.pipeline.batches import in_turns
from qualgate.records import ArmSpec, Job, JobFailure, JobResult, Prompt, QuantizeRecipe, UnitKey
from qualgate.workers import pool
from qualgate.workers.pool import MAX_ATTEMPTS, Queue, run_jobs
from qualgate.workers.unit import WorkerSettings
from tests.workers import fake_worker

BASELINE = ArmSpec(name="baseline", model="m")
VARIANTS = tuple(
    ArmSpec(name=name, model="m", quantize=QuantizeRecipe(method=method, group_size=32))
    for name, method in (("a", "int8"), ("b", "int4"))
)


def jobs(folder: Path, count: int = 5) -> list[Job]:
    return [
        Job(
            index=index,
            arm=arm,
            prompts=tuple(
                Prompt(key=UnitKey(arm.name, "set", f"{index}-{row}"), case_hash="h", token_ids=(1,), max_new_tokens=4)
                for row in range(3)
            ),
            artifact=str(folder / f"{index}"),
            drafted=True,
        )
        for arm in (BASELINE, *VARIANTS)
        for index in range(count)
    ]


def run(folder: Path, body, **options):
    settings = WorkerSettings(cache_dir=str(folder), sampling={}, threads=1, device="cpu")
    return list(run_jobs(jobs(folder), settings, 2, body=body, **options))


def units(outcomes) -> Counter:
    return Counter(completion.key for outcome in outcomes for completion in outcome.completions)


def test_each_worker_sees_a_gpu_of_its_own_and_who_comes_for_a_dead_one_sees_its(tmp_path, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,GPU-7,5")
    gpus = WorkerSettings(cache_dir=str(tmp_path), sampling={}, threads=1, device="cuda", gpus=("3", "GPU-7"))
    outcomes = list(run_jobs(jobs(tmp_path), gpus, 2, body=fake_worker.seeing_a_gpu))
    assert units(outcomes) == Counter(prompt.key for job in jobs(tmp_path) for prompt in job.prompts)
    seen = Counter(file.read_text() for file in tmp_path.glob("gpu-*"))
    assert sorted(seen.values()) == [1, 2]
    assert set(seen) == {"3 PCI_BUS_ID", "GPU-7 PCI_BUS_ID"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3,GPU-7,5"


def test_every_job_is_answered_once_and_variants_wait_for_their_baseline(tmp_path):
    outcomes = run(tmp_path, fake_worker.answering)
    assert all(isinstance(outcome, JobResult) for outcome in outcomes)
    assert units(outcomes) == Counter(prompt.key for job in jobs(tmp_path) for prompt in job.prompts)


@pytest.mark.parametrize("body", [fake_worker.dying_once, fake_worker.dying_in_mid_answer])
def test_a_worker_killed_in_the_middle_of_a_job_loses_and_doubles_nothing(tmp_path, body):
    outcomes = run(tmp_path, body)
    assert (tmp_path / "died").exists()
    assert units(outcomes) == Counter(prompt.key for job in jobs(tmp_path) for prompt in job.prompts)


def test_a_job_that_kills_every_worker_becomes_failures_and_takes_its_variants_with_it(tmp_path):
    outcomes = run(tmp_path, fake_worker.dying_always)
    failures = [outcome for outcome in outcomes if isinstance(outcome, JobFailure)]
    failed = Counter(key for failure in failures for key in failure.keys)
    assert failed == Counter(prompt.key for job in jobs(tmp_path) if job.index == 2 for prompt in job.prompts)
    assert "dies on this case (signal 9): set/2-2" in failures[0].error
    assert len(units(one for one in outcomes if isinstance(one, JobResult))) == 12 * 3


def test_a_case_that_kills_every_worker_is_set_apart_alone(tmp_path):
    outcomes = run(tmp_path, fake_worker.dying_on_a_case)
    failed = {key for outcome in outcomes if isinstance(outcome, JobFailure) for key in outcome.keys}
    assert failed == {UnitKey(arm, "set", "1-1") for arm in ("a", "b", "baseline")}
    answered = units(outcome for outcome in outcomes if isinstance(outcome, JobResult))
    assert set(answered.values()) == {1}
    assert answered.keys() | failed == {prompt.key for job in jobs(tmp_path) for prompt in job.prompts}


@pytest.mark.parametrize(
    ("body", "reason"),
    [(fake_worker.dying_at_start, "signal 9"), (fake_worker.broken_at_start, "ImportError: libcudart.so.13")],
)
def test_a_pool_whose_workers_all_die_at_start_ends_at_once_with_the_reason(tmp_path, body, reason):
    with pytest.raises(InfrastructureError, match=f"no worker starts: {MAX_ATTEMPTS} in a row .*{reason}"):
        run(tmp_path, body)
    assert len((tmp_path / "started").read_text()) <= MAX_ATTEMPTS + 1, "not three for each of fifteen jobs"


def test_a_pool_in_which_no_job_can_be_run_ends_at_the_second(tmp_path):
    settings = WorkerSettings(cache_dir=str(tmp_path), sampling={}, threads=1, device="cpu")
    outcomes = run_jobs(jobs(tmp_path), settings, 1, body=fake_worker.dying_on_every_job)
    with pytest.raises(InfrastructureError, match="no worker has answered anything: each of two jobs killed 3 of them"):
        next(outcomes)
    assert len((tmp_path / "started").read_text()) == 2 * MAX_ATTEMPTS


def test_the_first_job_may_kill_its_workers_and_the_rest_completes(tmp_path):
    settings = WorkerSettings(cache_dir=str(tmp_path), sampling={}, threads=1, device="cpu")
    outcomes = list(run_jobs(jobs(tmp_path), settings, 1, body=fake_worker.dying_on_the_first_job))
    assert {(o.arm, o.index) for o in outcomes if isinstance(o, JobFailure)} == {(n, 0) for n in ("baseline", "a", "b")}
    assert len(units(one for one in outcomes if isinstance(one, JobResult))) == 12 * 3


@pytest.mark.proof
def test_a_worker_that_hangs_is_ended_and_loses_and_doubles_nothing(tmp_path):
    settings = WorkerSettings(cache_dir=str(tmp_path), sampling={}, threads=1, device="cpu", job_seconds=20)
    outcomes = list(run_jobs(jobs(tmp_path), settings, 2, body=fake_worker.hanging_once))
    assert (tmp_path / "hung").exists()
    assert units(outcomes) == Counter(prompt.key for job in jobs(tmp_path) for prompt in job.prompts)


@pytest.mark.proof
def test_a_job_on_which_every_worker_hangs_becomes_a_failure_that_names_the_timeout(tmp_path):
    settings = WorkerSettings(cache_dir=str(tmp_path), sampling={}, threads=1, device="cpu", job_seconds=4)
    outcomes = list(run_jobs(jobs(tmp_path), settings, 2, body=fake_worker.hanging_always))
    failures = [outcome for outcome in outcomes if isinstance(outcome, JobFailure)]
    assert sorted((failure.arm, failure.index) for failure in failures) == [("a", 2), ("b", 2), ("baseline", 2)]
    assert "no answer within 4 s: workers.job_timeout" in failures[0].error


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
    settings = WorkerSettings(cache_dir=str(tmp_path), sampling={}, threads=1, device="cpu")
    for outcome in run_jobs(jobs(tmp_path), settings, 2, stop=lambda: len(finished) >= 4, body=fake_worker.answering):
        finished.append(outcome)
    assert 4 <= len(finished) < 15


def test_jobs_that_are_needed_no_more_are_dropped_and_the_others_still_run(tmp_path):
    settled, outcomes, late = set(), [], 0
    settings = WorkerSettings(cache_dir=str(tmp_path), sampling={}, threads=1, device="cpu")
    every = [replace(job, stage=job.index) for job in jobs(tmp_path)]
    for outcome in run_jobs(
        every, settings, 2, body=fake_worker.answering, needed=lambda job: job.arm.name not in settled
    ):
        outcomes.append(outcome)
        late += outcome.arm in settled
        if (outcome.arm, outcome.index) == ("a", 1):
            settled.add("a")
    done = Counter(outcome.arm for outcome in outcomes)
    assert (done["baseline"], done["b"]) == (5, 5)
    assert late <= 1, "what was under way with the other worker"
    assert list(run_jobs(every, settings, 2, body=fake_worker.answering, needed=lambda job: False)) == []


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
    settings = WorkerSettings(cache_dir=str(folder), sampling={}, threads=1, device="cpu")
    return [(found.arm, found.index) for found in run_jobs(every, settings, 1, body=body)]


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


def test_a_turn_that_kills_every_worker_fails_and_the_others_run(tmp_path):
    settings = WorkerSettings(cache_dir=str(tmp_path), sampling={}, threads=1, device="cpu")
    outcomes = list(run_jobs(turns(tmp_path, 4), settings, 1, body=fake_worker.dying_always))
    assert len(outcomes) == 12
    assert {(o.arm, o.index) for o in outcomes if isinstance(o, JobFailure)} == {
        ("baseline", 2), ("a", 2), ("b", 2)
    }  # fmt: skip


def test_a_first_turn_that_kills_every_worker_fails_and_the_others_run(tmp_path):
    settings = WorkerSettings(cache_dir=str(tmp_path), sampling={}, threads=1, device="cpu")
    every = sorted(turns(tmp_path, 3), key=lambda job: (job.index, not job.arm.is_baseline))
    every = [replace(job, stage=job.index) for job in every]
    outcomes = list(run_jobs(every, settings, 1, body=fake_worker.waiting_for_the_baseline))
    assert {(o.arm, o.index) for o in outcomes if isinstance(o, JobFailure)} == {(n, 0) for n in ("baseline", "a", "b")}
    assert len(outcomes) == 9


def test_one_worker_and_no_jobs_are_fine(tmp_path):
    settings = WorkerSettings(cache_dir=str(tmp_path), sampling={}, threads=1, device="cpu")
    assert list(run_jobs([], settings, 2, body=fake_worker.answering)) == []
    assert len(list(run_jobs(jobs(tmp_path, 2), settings, 1, body=fake_worker.answering))) == 6


def test_ctrl_c_is_ignored_from_a_workers_first_moment_and_only_there(tmp_path):
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(UsageError, match="ignored"):
        run(tmp_path, fake_worker.telling_of_ctrl_c)
    assert signal.getsignal(signal.SIGINT) == before


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
    assert units(outcomes) == Counter(prompt.key for job in jobs(tmp_path) for prompt in job.prompts)
