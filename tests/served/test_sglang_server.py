"""Our client and SGLang's own server on a CPU: `QUALGATE_SERVERS_SGLANG=PYTHON pytest -m servers`, with a Python that
can import sglang and serve by its torch layers (docs/served.md). One server serves all but two; it is up within a
minute of an idle core."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import aclosing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from qualgate.bench.questions import MODEL, asked_of
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.errors import Exit
from qualgate.evalsets import load
from qualgate.load.counters import Counted, counted_since, written_now
from qualgate.records import ArmSpec, Job, JobResult, Prompt, Sampling, Served
from qualgate.served.client import Client
from qualgate.served.job import run_served
from qualgate.served.launch import running
from qualgate.served.probes import probe
from tests.command_line import qualgate

INTERPRETER = os.environ.get("QUALGATE_SERVERS_SGLANG", "")
SET_FOR_IT = {"SGLANG_USE_CPU_ENGINE": "1", "HF_HUB_OFFLINE": "1"}
FLAGS = (
    "--device cpu --attention-backend torch_native --sampling-backend pytorch --disable-overlap-schedule "
    "--disable-cuda-graph --max-total-tokens 8192 --enable-metrics --tool-call-parser hermes"
)
CASES = 12  # of each of two sets
AT_ONCE = 24

pytestmark = [
    pytest.mark.servers,
    pytest.mark.skipif(not INTERPRETER, reason="QUALGATE_SERVERS_SGLANG names no Python that can import sglang"),
]


@pytest.fixture(scope="module")
def prompts() -> tuple[Prompt, ...]:
    return tuple(one for kind in asked_of({"a": ("tool_calls", "arithmetic")}, CASES).values() for one in kind)


@pytest.fixture(scope="module", autouse=True)
def on_a_cpu() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for name, value in SET_FOR_IT.items():
            patch.setenv(name, value)
        yield


def command(folder: Path | str, more: str = "--dtype float32") -> str:
    return (
        f"{INTERPRETER} -m sglang.launch_server --model-path {folder} --served-model-name m --port {{port}} "
        f"{FLAGS} {more}"
    )


@contextmanager
def serving(more: str) -> Iterator[ArmSpec]:
    served = Served(command=command(MODEL, more), engine="sglang", tokenizer=str(MODEL), prompt_logprobs=20)
    with running(ArmSpec(name="baseline", model="m", served=served), Path.cwd(), lambda: False) as started:
        assert started is not None
        yield started


@pytest.fixture(scope="module")
def arm() -> Iterator[ArmSpec]:
    with serving("--dtype float32") as started:
        yield started


def of(arm: ArmSpec, **more: object) -> ArmSpec:
    assert arm.served is not None
    return replace(arm, served=replace(arm.served, **more))


def answered(arm: ArmSpec, prompts: tuple[Prompt, ...], artifact: Path | str = "", name: str = "baseline") -> JobResult:
    given = tuple(replace(one, key=replace(one.key, arm=name)) for one in prompts)
    job = Job(index=0, arm=replace(arm, name=name), prompts=given, artifact=str(artifact), drafted=name != "baseline")
    return run_served(job, {"temperature": 0}, AT_ONCE)


def ids(result: JobResult) -> list[tuple[int, ...]]:
    return [one.token_ids for one in result.completions]


@pytest.fixture(scope="module")
def place(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("run") / "job-00000.safetensors"


@pytest.fixture(scope="module")
def baseline(arm, prompts, place) -> JobResult:
    return answered(arm, prompts, place)


@pytest.fixture(scope="module")
def ours(prompts, tmp_path_factory) -> JobResult:
    spec = ArmSpec(name="baseline", model=str(MODEL), dtype="float32")
    here = load_arm(spec, tmp_path_factory.mktemp("here"), {}, device="cpu")
    return run_job(here, Job(index=0, arm=here.spec, prompts=prompts, artifact="", drafted=False))


@pytest.fixture(scope="module")
def messages(prompts) -> tuple[Prompt, ...]:
    """The same cases, whose tokens the server makes, and whose calls its parser reads."""
    bodies = {case.id: case.body for name in ("tool_calls", "arithmetic") for case in load(name, Path.cwd()).cases}
    said = [{name: bodies[one.key.case_id].get(name) for name in ("messages", "tools")} for one in prompts]
    asked = [json.dumps({**{name: what for name, what in one.items() if what}, "dialect": "hermes"}) for one in said]
    return tuple(replace(one, token_ids=(), asked=what) for one, what in zip(prompts, asked, strict=True))


def test_it_says_what_our_engine_says_token_for_token(baseline, ours):
    assert sum(one == other for one, other in zip(ids(ours), ids(baseline), strict=True)) >= 2 * CASES - 1
    assert baseline.generation.engine.startswith("sglang 0.")
    assert all(one.token_ids for one in baseline.completions)
    assert {one.finish_reason for one in baseline.completions} == {"eos"}


def test_it_reads_its_own_answers_as_it_said_them(arm, baseline, prompts, place):
    """All of them, though it names the last token of this vocabulary, which ends each call, as another."""
    again = answered(arm, prompts, place, "again")
    assert ids(again) == ids(baseline)
    assert all(one.top1_agreement == 1.0 and min(one.kl) < 1e-6 for one in again.drifts)
    assert again.generation.tokens < 0.5 * sum(map(len, ids(baseline)))


def test_whole_answers_are_those_that_it_streams(arm, baseline, prompts):
    assert ids(answered(of(arm, stream=False, prompt_logprobs=0), prompts)) == ids(baseline)


@pytest.mark.parametrize("stream", [True, False])
def test_chats_and_calls_that_its_parser_read_say_what_our_engine_says(arm, messages, ours, stream):
    found = answered(of(arm, stream=stream, tokenizer="", prompt_logprobs=0), messages)
    same = [one.text == other.text for one, other in zip(ours.completions, found.completions, strict=True)]
    assert sum(same) >= 2 * CASES - 1
    assert [one.prompt_tokens for one in found.completions] == [one.prompt_tokens for one in ours.completions]
    assert all(one.counted for one in found.completions)


def test_a_text_ends_its_answer(arm, baseline, prompts):
    stopped = tuple(replace(one, until=("er",)) for one in prompts)
    found = answered(of(arm, prompt_logprobs=0), stopped)
    for one, whole in zip(found.completions, baseline.completions, strict=True):
        assert one.text == whole.text.partition("er")[0]
        assert one.finish_reason == ("stop" if "er" in whole.text else "eos")


def test_no_probe_accuses_it(arm, prompts, messages):
    for asked, given in ((arm, prompts), (of(arm, tokenizer="", prompt_logprobs=0), messages)):
        found = {one.name: one for one in probe(asked, given, AT_ONCE)}
        assert [one.fault for one in found.values() if one.fault] == []
        assert ("tools" in found) == (given is messages)
        assert found["log-probs"].values


def test_what_it_draws_is_held_against_the_odds_that_it_tells(arm, prompts):
    drawn = tuple(replace(one, sampling=Sampling(temperature=1.0)) for one in prompts)
    found = answered(of(arm, prompt_logprobs=0), drawn)
    assert found.generation.drawing, "its log-probs were told"
    # Without its deterministic mode, which these layers do not have, it heeds no seed; two draws may be alike.
    assert {one.name for one in probe(arm, drawn, AT_ONCE) if one.fault} <= {"seed"}


def test_it_stops_when_it_is_left(arm):
    async def left() -> Counted | None:
        async with Client("baseline", arm.served, AT_ONCE) as client:
            before = await written_now(client)
            body = {"model": "m", "prompt": [1, 20, 7], "max_tokens": 1000, "stream": True, "ignore_eos": True}
            async with aclosing(client.pieces("/completions", body)) as pieces:
                await anext(pieces)
            await counted_since(client, before)
            return await counted_since(client, before)

    found = asyncio.run(left())
    assert found is not None
    assert found.afterwards == 0
    assert 1 <= found.written < 900


def rounded(folder: Path) -> Path:
    """The reference model in four bits, written as plain numbers: what it loads on any CPU."""
    shutil.copytree(MODEL, folder)
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if name.endswith("proj.weight"):
            groups = weight.float().reshape(-1, 32)
            step = groups.abs().amax(1, keepdim=True).clamp(min=1e-9) / 7
            weights[name] = (groups / step).round().mul(step).reshape(weight.shape).to(weight.dtype)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


def test_a_gate_between_two_of_its_servers_judges_answers_and_drift(tmp_path):
    arms = {"model": "m", "engine": "sglang", "tokenizer": "reference", "prompt_logprobs": 20}
    gate = {
        "version": 1,
        "baseline": {"serve": command(MODEL), **arms},
        "variants": {"fewer": {"serve": command(rounded(tmp_path / "fewer")), **arms}},
        "evalsets": ["tool_calls"],
        "gate": {
            "rules": [
                {"metric": "tool_call.correct", "max_drop": 0.1},
                {"metric": "drift.top1_agreement", "min": 0.9},
            ]
        },
    }
    (tmp_path / "gate.yaml").write_text(json.dumps(gate))
    done = qualgate("run", "gate.yaml", "--json", "--limit", "24", cwd=tmp_path)
    assert done.returncode == Exit.UNDECIDED, done.stderr  # a trial
    found = json.loads(done.stdout)
    for one in found["arms"]:
        assert (one["done"], one["errors"]) == (24, 0)
        assert one["footprint"]["generation"]["engine"].startswith("sglang 0.")
        assert [probe["name"] for probe in one["footprint"]["probes"] if probe["fault"]] == []
    compared = {one["metric"]: one for one in found["verdicts"][0]["comparisons"]}
    assert compared["drift.top1_agreement"]["n"] == 24
    assert compared["tool_call.correct"]["baseline"] > 0.9
