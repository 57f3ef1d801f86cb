"""What a worker process answers when a job goes wrong, and what it does before an arm's first timed job."""

from __future__ import annotations

import gc
import signal
import subprocess
import sys
import weakref
from dataclasses import replace
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from qualgate.engine import job as engine_job
from qualgate.engine import load
from qualgate.engine.packed import PackedEngine
from qualgate.engine.peak import Peak
from qualgate.engine.request import Spoken
from qualgate.records import ArmSpec, Job, JobFailure, JobResult, Prompt, Sampling, UnitKey
from qualgate.workers import unit
from qualgate.workers.unit import READY, Refused, WorkerSettings, serve
from tests.engine.jobs import INT4
from tests.tiny_models import save_tiny_model

PROMPT = Prompt(key=UnitKey("baseline", "set", "1"), case_hash="h", token_ids=(1,), max_new_tokens=4)


class Pipe:
    """Jobs in, one by one or a turn at once; answers out."""

    def __init__(self, *hands: Job | tuple[Job, ...]) -> None:
        self.hands = [hand if isinstance(hand, tuple) else (hand,) for hand in hands]
        self.answers = []

    def recv(self) -> tuple[Job, ...]:
        if not self.hands:
            raise EOFError
        return self.hands.pop(0)

    def send(self, answer) -> None:
        self.answers.append(answer)


class Garbage:
    """In place of `gc`, for to look through all that a test process has imported takes a second each time: its calls,
    and a look through what is new."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def __getattr__(self, name: str):
        def call() -> None:
            self.calls.append(name)
            if name == "collect":
                gc.collect(1)

        return call


@pytest.fixture
def garbage(monkeypatch) -> Garbage:
    garbage = Garbage()
    monkeypatch.setattr(unit, "gc", garbage)
    return garbage


@pytest.fixture
def answers_to(tmp_path, monkeypatch, garbage):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)

    def ask(*hands: Job | tuple[Job, ...], keep: bool = False) -> list:
        pipe: Any = Pipe(*hands)
        serve(pipe, WorkerSettings(cache_dir=str(tmp_path), sampling={}, threads=1, device="cpu", keep=keep))
        ready, *answers = pipe.answers
        assert ready == READY
        return answers

    return ask


@pytest.fixture
def answer_to(answers_to):
    def ask(model):
        spec = ArmSpec(name="baseline", model=str(model))
        return answers_to(Job(index=0, arm=spec, prompts=(PROMPT,), artifact="", drafted=False))[0]

    return ask


def test_an_unforeseen_error_is_a_failure_of_one_line(answer_to, monkeypatch):
    def fail(arm, job):
        raise IndexError("first line\nsecond line")

    monkeypatch.setattr(engine_job, "run_job", fail)
    monkeypatch.setattr(load, "load_arm", lambda spec, *_, **__: SimpleNamespace(spec=spec))
    answer = answer_to("m")
    assert isinstance(answer, JobFailure)
    assert (answer.error, answer.keys) == ("IndexError: first line second line", (PROMPT.key,))


def test_no_answer_waits_for_garbage_to_be_sought_in_loaded_models_and_an_arm_is_freed_before_the_next(
    answers_to, monkeypatch, garbage
):
    class Arm:
        def __init__(self, spec):
            self.spec, self.itself = spec, self  # as models may

    loaded, alive = list[weakref.ref](), list[int]()

    def load_arm(spec, *_, **__):
        alive.append(sum(one() is not None for one in loaded))
        arm = Arm(spec)
        loaded.append(weakref.ref(arm))
        return arm

    monkeypatch.setattr(engine_job, "run_job", lambda arm, job: garbage.calls.append("run"))
    monkeypatch.setattr(load, "load_arm", load_arm)
    arms = [ArmSpec(name=name, model="m") for name in ("baseline", "a", "b")]
    answers_to(*(Job(index=0, arm=arm, prompts=(PROMPT,), artifact="", drafted=False) for arm in arms))
    assert alive == [0, 0, 0]
    again = ["unfreeze", "collect", "disable", "freeze", "enable", "freeze", "run"]
    assert garbage.calls == [*again[2:], *again, *again]


def test_no_garbage_is_looked_for_while_the_engine_is_imported_nor_in_what_was_imported(monkeypatch, garbage):
    monkeypatch.setattr(unit, "import_module", lambda _: garbage.calls.append("import"))
    unit.import_engine()
    assert garbage.calls == ["disable", *["import"] * 3, "freeze", "enable"]


def test_a_config_that_transformers_chokes_on_is_the_users_to_mend(answer_to, tmp_path):
    folder = save_tiny_model(tmp_path / "model")
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"num_attention_heads": 4', '"num_attention_heads": 0'))
    answer = answer_to(folder)
    assert isinstance(answer, Refused)
    assert str(folder) in answer.message
    assert "\n" not in answer.message


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> str:
    return str(save_tiny_model(tmp_path_factory.mktemp("unit") / "model", dtype="float32"))


def jobs_of(model: str, artifacts: Path, *, timed: bool, drafted: bool = False, temperature: float = 0.0) -> list[Job]:
    """Three of the baseline and of a variant, on the same cases; the last reads and says nothing."""
    arms = ArmSpec(name="baseline", model=model), ArmSpec(name="int4", model=model, quantize=INT4)
    read = Prompt(
        key=UnitKey("", "set", "read"), case_hash="h", token_ids=(), max_new_tokens=0, requests=((((5, 6), (7, 8)),),)
    )  # fmt: skip
    said = tuple(
        Prompt(
            key=UnitKey("", "set", f"{number}"),
            case_hash="h",
            token_ids=(number, 2, 3),
            max_new_tokens=2 + 5 * number,
            sampling=Sampling(temperature=temperature),
        )
        for number in range(3)
    )
    return [
        Job(
            index=index,
            arm=arm,
            prompts=tuple(replace(prompt, key=replace(prompt.key, arm=arm.name)) for prompt in prompts),
            artifact=str(artifacts / f"{index}"),
            drafted=drafted and not arm.is_baseline,
            seed=7,
            timed=timed,
        )
        for arm in arms
        for index, prompts in enumerate((said, said[1:], (read,)))
    ]


@pytest.fixture
def ticks(monkeypatch):
    """A clock that goes on by one whenever it is read, so that times are equal to the bit where the work is."""
    clock = count()
    monkeypatch.setattr("qualgate.engine.packed.perf_counter", lambda: float(next(clock)))
    for module in ("answers", "loglikelihood"):
        monkeypatch.setattr(f"qualgate.engine.{module}.time", lambda: 1.0e9)


@pytest.mark.proof
@pytest.mark.parametrize("drafted", [False, True])
@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_warming_up_changes_no_answer_no_drift_and_no_time(answers_to, model, tmp_path, ticks, drafted, temperature):
    cold, warm = (
        answers_to(*jobs_of(model, tmp_path, timed=timed, drafted=drafted, temperature=temperature))
        for timed in (False, True)
    )
    assert all(isinstance(answer, JobResult) for answer in cold)
    assert [told_once(answer) for answer in warm] == [told_once(answer) for answer in cold]


def told_once(result: JobResult) -> JobResult:
    """Without what was said once more, which is not where times decide, and the memory that it took."""
    return replace(result, generation=replace(result.generation, checked=0, otherwise=0, peak=0))


def test_an_arm_just_loaded_is_warmed_up_once_and_only_where_times_decide(answers_to, model, tmp_path, monkeypatch):
    warmed = []
    monkeypatch.setattr(engine_job, "warm_up", lambda arm, job: warmed.append((arm.spec.name, job.index)))
    monkeypatch.setattr(engine_job, "run_job", lambda arm, job: None)
    timed, plain = (jobs_of(model, tmp_path, timed=timed) for timed in (True, False))
    answers_to(*plain)
    assert warmed == []
    answers_to(*timed, timed[1])
    assert warmed == [("baseline", 0), ("int4", 0), ("baseline", 1)]


@pytest.mark.parametrize("index", [0, 2])
def test_warming_up_reads_a_prompt_and_steps_within_what_the_job_may(answers_to, model, tmp_path, monkeypatch, index):
    seen, run = [], PackedEngine.run

    def watched(self, requests, proposer, on_event, draws=None):
        said = []
        seen.append(([list(request.prompt) for request in requests], said))

        def hear(event):
            if isinstance(event, Spoken):
                said.extend(event.requests)
            on_event(event)

        run(self, requests, proposer, hear, draws)

    monkeypatch.setattr(PackedEngine, "run", watched)
    answers_to(jobs_of(model, tmp_path, timed=True)[index])
    assert seen[0] == (([[0, 2, 3]], [0, 0]) if index == 0 else ([[5, 6, 7]], [0]))


def test_a_failure_in_warming_up_is_the_jobs_and_the_next_job_is_warmed_up(answers_to, model, tmp_path, monkeypatch):
    tried = []

    def fails_once(arm, job):
        tried.append(job.index)
        if len(tried) == 1:
            raise RuntimeError("out of memory")

    monkeypatch.setattr(engine_job, "warm_up", fails_once)
    first, second, third, *_ = jobs_of(model, tmp_path, timed=True)
    failed, *answered = answers_to(first, second, third)
    assert isinstance(failed, JobFailure)
    assert (failed.error, failed.keys) == ("RuntimeError: out of memory", tuple(p.key for p in first.prompts))
    assert all(isinstance(answer, JobResult) for answer in answered)
    assert tried == [0, 1]


@pytest.mark.parametrize("short", [True, False])
def test_a_job_for_which_memory_was_short_fails_with_what_helps(answers_to, model, tmp_path, monkeypatch, short):
    def fails(arm, job):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory" if short else "something else")

    monkeypatch.setattr(engine_job, "run_job", fails)
    [failed] = answers_to(jobs_of(model, tmp_path, timed=False)[0])
    assert isinstance(failed, JobFailure)
    assert ("`workers: {count: 1}`" in failed.error) == ("`kv_cache: int8`" in failed.error) == short


def test_the_most_memory_that_a_job_took_goes_with_its_answers(answers_to, model, tmp_path, monkeypatch):
    monkeypatch.setattr(unit, "with_peak", lambda work, device: (work(), Peak(resident=7, device=3)))
    for answer in answers_to(*jobs_of(model, tmp_path, timed=False), *turns_of(model, tmp_path)):
        assert (answer.generation.peak, answer.generation.device_peak) == (7, 3)


def turns_of(model: str, artifacts: Path) -> list[tuple[Job, ...]]:
    """Each of two arms' jobs of the same cases, the variant first in the first and the last turn."""
    every = jobs_of(model, artifacts, timed=True)
    both = list(zip(every[:3], every[3:], strict=True))
    return [both[0][::-1], both[1], both[2][::-1]]


@pytest.mark.parametrize("keep", [False, True])
def test_a_variant_that_comes_before_the_baseline_gives_the_same_answers_and_drift(answers_to, model, tmp_path, keep):
    expected = {(one.arm, one.index): one for one in answers_to(*jobs_of(model, tmp_path / "one by one", timed=True))}
    found = {(one.arm, one.index): one for one in answers_to(*turns_of(model, tmp_path / "turns"), keep=keep)}
    assert found.keys() == expected.keys()
    for key, one in found.items():
        assert isinstance(one, JobResult)
        assert (one.drifts, told_once(one).generation) == (expected[key].drifts, told_once(expected[key]).generation)
        assert [a.token_ids for a in one.completions] == [a.token_ids for a in expected[key].completions]
    first, second = (found[arm, 0].completions[0].began for arm in ("int4", "baseline"))
    assert first < second, "what was decoded first began first, though it was weighed last"


@pytest.mark.parametrize(("keep", "loads"), [(True, 2), (False, 7)])
def test_arms_that_fit_together_are_loaded_once_and_others_one_at_a_time(
    answers_to, model, tmp_path, monkeypatch, keep, loads
):
    loaded, load_arm = [], load.load_arm
    monkeypatch.setattr(load, "load_arm", lambda spec, *a, **k: loaded.append(spec.name) or load_arm(spec, *a, **k))
    answers_to(*turns_of(model, tmp_path), keep=keep)
    assert len(loaded) == loads


def test_a_baseline_that_fails_in_a_turn_fails_those_that_wait_for_it(answers_to, model, tmp_path, monkeypatch):
    run_job = engine_job.run_job

    def fails(arm, job, *rest):
        if arm.spec.is_baseline:
            raise RuntimeError("out of memory")
        return run_job(arm, job, *rest)

    monkeypatch.setattr(engine_job, "run_job", fails)
    answers = answers_to(*turns_of(model, tmp_path))
    assert {(one.arm, one.index) for one in answers} == {
        (arm, index) for arm in ("baseline", "int4") for index in range(3)
    }
    assert {one.error for one in answers if one.arm == "int4" and one.index == 1} == {
        "the baseline's job 1 failed: RuntimeError: out of memory"
    }
    assert all(isinstance(one, JobFailure) for one in answers)


def test_who_asks_servers_imports_no_engine():
    """torch and transformers take seconds, in each worker."""
    code = "import sys; import qualgate.workers.unit, qualgate.served.job; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
