"""Our client and `transformers serve` on a CPU: `QUALGATE_SERVERS_TRANSFORMERS=PROGRAM pytest -m servers`, with the
`transformers` of an environment with `pip install "transformers[serving]"`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.bench.questions import MODEL, asked_of
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.evalsets import load
from qualgate.records import ArmSpec, Job, Prompt, Served
from qualgate.served.job import run_served
from qualgate.served.launch import running
from qualgate.served.probes import probe

PROGRAM = os.environ.get("QUALGATE_SERVERS_TRANSFORMERS", "")
CASES = 12
AT_ONCE = 4

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not PROGRAM, reason="QUALGATE_SERVERS_TRANSFORMERS names no `transformers` that serves"),
]


@pytest.fixture(scope="module")
def by_tokens() -> tuple[Prompt, ...]:
    [found] = asked_of({"a": ("arithmetic",)}, CASES).values()
    return tuple(found)


@pytest.fixture(scope="module")
def prompts(by_tokens) -> tuple[Prompt, ...]:
    """By messages, which is all that it takes."""
    bodies = {case.id: case.body for case in load("arithmetic", Path.cwd()).cases}
    said = [json.dumps({"messages": bodies[one.key.case_id]["messages"]}) for one in by_tokens]
    return tuple(replace(one, token_ids=(), asked=asked) for one, asked in zip(by_tokens, said, strict=True))


@pytest.fixture(scope="module")
def arm(tmp_path_factory) -> Iterator[ArmSpec]:
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(MODEL, folder / "support")
    served = Served(command=f"{PROGRAM} serve --port {{port}} --device cpu --dtype float32", engine="transformers")
    with pytest.MonkeyPatch.context() as patch:
        (folder / "hub" / "hub").mkdir(parents=True)  # it lists what lies there, and answers 500 where nothing does
        patch.setenv("HF_HOME", str(folder / "hub"))
        patch.setenv("HF_HUB_OFFLINE", "1")
        with running(ArmSpec(name="baseline", model="support", served=served), folder, lambda: False) as started:
            assert started is not None
            yield started


def test_a_model_that_it_does_not_list_answers_in_streams_that_end_without_a_word(arm, by_tokens, prompts, tmp_path):
    found = run_served(Job(index=0, arm=arm, prompts=prompts, artifact="", drafted=False), {"temperature": 0}, AT_ONCE)
    here = load_arm(ArmSpec(name="baseline", model=str(MODEL), dtype="float32"), tmp_path, {}, device="cpu")
    ours = run_job(here, Job(index=0, arm=here.spec, prompts=by_tokens, artifact="", drafted=False))
    same = sum(one.text == other.text for one, other in zip(ours.completions, found.completions, strict=True))
    assert same >= CASES - 1  # a near tie, at the most


def test_probes_find_that_it_goes_on_behind_a_stop_text(arm, prompts):
    assert "stop" in [one.name for one in probe(arm, prompts, AT_ONCE) if one.fault]
