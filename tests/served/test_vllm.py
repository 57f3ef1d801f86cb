"""Our client and vLLM's own server on a CPU: `QUALGATE_SERVERS_VLLM=PYTHON pytest -m servers`, with a Python that can
import vllm (docs/served.md). One server serves all but the last; it is up within a minute of an idle core, or some."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.bench.questions import MODEL, asked_of
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.records import ArmSpec, Job, JobResult, Prompt, Served
from qualgate.served.job import run_served
from qualgate.served.launch import running
from qualgate.served.probes import probe
from tests.command_line import qualgate

INTERPRETER = os.environ.get("QUALGATE_SERVERS_VLLM", "")
SET_FOR_IT = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "1", "HF_HUB_OFFLINE": "1"}
CASES = 12  # of each of two sets
AT_ONCE = 24

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not INTERPRETER, reason="QUALGATE_SERVERS_VLLM names no Python that can import vllm"),
]


@pytest.fixture(scope="module")
def prompts() -> tuple[Prompt, ...]:
    return tuple(one for kind in asked_of({"a": ("tool_calls", "arithmetic")}, CASES).values() for one in kind)


@contextmanager
def serving(folder: Path, dtype: str) -> Iterator[ArmSpec]:
    command = (
        f"{INTERPRETER} -m vllm.entrypoints.openai.api_server --model {folder} --served-model-name m --port {{port}} "
        f"--dtype {dtype} --enforce-eager --max-model-len 1024"
    )
    served = Served(command=command, engine="vllm", tokenizer=str(MODEL), prompt_logprobs=20)
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SET_FOR_IT.items():
            patch.setenv(name, value)
        with running(ArmSpec(name="baseline", model="m", served=served), Path.cwd(), lambda: False) as started:
            assert started is not None
            yield started


@pytest.fixture(scope="module")
def arm() -> Iterator[ArmSpec]:
    with serving(MODEL, "float32") as started:
        yield started


def answered(arm: ArmSpec, prompts: tuple[Prompt, ...], artifact: Path, name: str = "baseline") -> JobResult:
    given = tuple(replace(one, key=replace(one.key, arm=name)) for one in prompts)
    job = Job(index=0, arm=replace(arm, name=name), prompts=given, artifact=str(artifact), drafted=name != "baseline")
    return run_served(job, {"temperature": 0}, AT_ONCE)


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("run") / "job-00000.safetensors"


@pytest.fixture(scope="module")
def baseline(arm, prompts, place) -> JobResult:
    return answered(arm, prompts, place)


def test_it_says_what_our_engine_says_token_for_token(baseline, prompts, tmp_path):
    here = load_arm(ArmSpec(name="baseline", model=str(MODEL), dtype="float32"), tmp_path, {}, device="cpu")
    ours = run_job(here, Job(index=0, arm=here.spec, prompts=prompts, artifact="", drafted=False)).completions
    same = sum(one.token_ids == other.token_ids for one, other in zip(ours, baseline.completions, strict=True))
    assert same >= len(prompts) - 1  # a near tie, at the most
    assert baseline.generation.engine.startswith("vllm ")
    assert all(one.token_ids for one in baseline.completions)


def test_it_reads_its_own_answers_as_it_said_them(arm, baseline, prompts, place):
    again = answered(arm, prompts, place, "again")
    assert [one.token_ids for one in again.completions] == [one.token_ids for one in baseline.completions]
    assert all(one.top1_agreement == 1.0 and min(one.kl) < 1e-6 for one in again.drifts)
    assert again.generation.tokens < 0.5 * sum(len(one.token_ids) for one in baseline.completions)


def test_no_probe_accuses_it(arm, prompts):
    found = {one.name: one for one in probe(arm, prompts, AT_ONCE)}
    assert [one.fault for one in found.values() if one.fault] == []
    assert found["log-probs"].values


def test_a_folder_in_int4_says_what_our_engine_says_of_it_as_served(prompts, place, tmp_path):
    made = qualgate("quantize", "reference", "--method", "int4", "--group-size", "32", "--out", "int4", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    spec = ArmSpec(name="baseline", model=str(tmp_path / "int4"), dtype="bfloat16", arithmetic="served")
    here = load_arm(spec, tmp_path, {}, device="cpu")
    ours = run_job(here, Job(index=0, arm=spec, prompts=prompts, artifact="", drafted=False)).completions
    with serving(tmp_path / "int4", "bfloat16") as arm:
        theirs = answered(arm, prompts, place).completions
    assert sum(one.token_ids == other.token_ids for one, other in zip(ours, theirs, strict=True)) >= len(prompts) - 3
