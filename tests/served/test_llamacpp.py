"""Our client and llama.cpp's own server on a CPU: `QUALGATE_SERVERS_LLAMACPP=PYTHON pytest -m servers`, with a Python
that has `pip install xllamacpp gguf` (`llamacpp_server`)."""

from __future__ import annotations

import os
from collections.abc import Iterator
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

INTERPRETER = os.environ.get("QUALGATE_SERVERS_LLAMACPP", "")
SERVER = Path(__file__).with_name("llamacpp_server.py")
CASES = 12  # of each of two sets
AT_ONCE = 16

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not INTERPRETER, reason="QUALGATE_SERVERS_LLAMACPP names no Python that can import xllamacpp"),
]


@pytest.fixture(scope="module")
def prompts() -> tuple[Prompt, ...]:
    return tuple(one for kind in asked_of({"a": ("tool_calls", "arithmetic")}, CASES).values() for one in kind)


@pytest.fixture(scope="module", params=["F32", "Q8_0"])
def arm(request) -> Iterator[ArmSpec]:
    served = Served(
        command=f"{INTERPRETER} {SERVER} {MODEL} {request.param} {{port}}", engine="llamacpp", tokenizer=str(MODEL)
    )
    spec = ArmSpec(name="baseline", model="m", served=served)
    with running(spec, Path.cwd(), lambda: False) as started:
        assert started is not None
        yield started


def answered(arm: ArmSpec, prompts: tuple[Prompt, ...]) -> JobResult:
    return run_served(Job(index=0, arm=arm, prompts=prompts, artifact="", drafted=False), {"temperature": 0}, AT_ONCE)


def test_it_says_what_our_engine_says(arm, prompts, tmp_path):
    here = load_arm(ArmSpec(name="baseline", model=str(MODEL), dtype="float32"), tmp_path, {}, device="cpu")
    ours = run_job(here, Job(index=0, arm=here.spec, prompts=prompts, artifact="", drafted=False)).completions
    found = answered(arm, prompts).completions
    assert {one.finish_reason for one in found} == {"stop"}, "none is cut off"
    same = sum(one.text == other.text for one, other in zip(ours, found, strict=True))
    assert same >= len(prompts) - 1  # eight bits change next to none of these answers either


def test_what_it_is_asked_at_once_it_answers_though_it_closes_its_connections(arm, prompts):
    """Behind each answer that it streams, and without a word: every second request went into a closed one."""
    many = tuple(replace(one, key=replace(one.key, repeat=at)) for at in range(8) for one in prompts)
    assert len(answered(arm, many).completions) == len(many)


def test_no_probe_accuses_it(arm, prompts):
    assert [one.fault for one in probe(arm, prompts, AT_ONCE) if one.fault] == []
