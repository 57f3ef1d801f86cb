"""What a worker process answers when a job goes wrong."""

from __future__ import annotations

import signal
from types import SimpleNamespace
from typing import Any

import pytest

from qualgate.engine import job as engine_job
from qualgate.engine import load
from qualgate.records import ArmSpec, Job, JobFailure, Prompt, UnitKey
from qualgate.workers.unit import Refused, WorkerSettings, serve
from tests.tiny_models import save_tiny_model

PROMPT = Prompt(key=UnitKey("baseline", "set", "1"), case_hash="h", token_ids=(1,), max_new_tokens=4)


class Pipe:
    """One job in, one answer out."""

    def __init__(self, job: Job) -> None:
        self.jobs, self.answers = [job], []

    def recv(self) -> Job:
        if not self.jobs:
            raise EOFError
        return self.jobs.pop()

    def send(self, answer) -> None:
        self.answers.append(answer)


@pytest.fixture
def answer_to(tmp_path, monkeypatch):
    monkeypatch.setattr(signal, "signal", lambda *_: None)
    monkeypatch.setattr("torch.set_num_threads", lambda _: None)

    def ask(model):
        spec = ArmSpec(name="baseline", model=str(model))
        pipe: Any = Pipe(Job(index=0, arm=spec, prompts=(PROMPT,), artifact="", drafted=False))
        serve(pipe, WorkerSettings(cache_dir=str(tmp_path), sampling={}, threads=1, device="cpu"))
        return pipe.answers[0]

    return ask


def test_an_unforeseen_error_is_a_failure_of_one_line(answer_to, monkeypatch):
    def fail(arm, job):
        raise IndexError("first line\nsecond line")

    monkeypatch.setattr(engine_job, "run_job", fail)
    monkeypatch.setattr(load, "load_arm", lambda spec, *_, **__: SimpleNamespace(spec=spec))
    answer = answer_to("m")
    assert isinstance(answer, JobFailure)
    assert (answer.error, answer.keys) == ("IndexError: first line second line", (PROMPT.key,))


def test_a_config_that_transformers_chokes_on_is_the_users_to_mend(answer_to, tmp_path):
    folder = save_tiny_model(tmp_path / "model")
    config = (folder / "config.json").read_text()
    (folder / "config.json").write_text(config.replace('"num_attention_heads": 4', '"num_attention_heads": 0'))
    answer = answer_to(folder)
    assert isinstance(answer, Refused)
    assert str(folder) in answer.message
    assert "\n" not in answer.message
