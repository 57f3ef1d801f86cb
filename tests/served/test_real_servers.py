"""One contract for servers that other engines bring, on a CPU: `QUALGATE_SERVERS_VLLM=PYTHON pytest -m servers`.

So SGLANG, LLAMACPP (a Python with `pip install xllamacpp gguf`); QUALGATE_SERVERS_TRANSFORMERS names
its program itself (README.md). A server is up within a minute of an idle core, or some.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import aclosing, closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from safetensors.torch import load_file, save_file

from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.errors import Exit
from qualgate.evalsets import load
from qualgate.pipeline.load.counters import Counted, counted_since, written_now
from qualgate.records import ArmSpec, Job, JobResult, Prompt, Sampling, Served
from qualgate.served.client import Client
from qualgate.served.forms import REPEATS
from qualgate.served.job import run_served
from qualgate.served.launch import running
from qualgate.served.probes import probe
from tests.benchmarks.questions import MODEL, asked_of
from tests.command_line import qualgate
from tests.served.by_hand import by_hand, stored

CASES = 12  # of each of two sets
AT_ONCE = 16
HERE = Path(__file__).parent


@dataclass(frozen=True, kw_only=True)
class Server:
    """command: of {program}, the model's {folder} and a {port} that the run puts in. listed: it lists a prompt's
    log-probs; tokens: it is asked by token ids, which it tells; accused: what its probes rightly find."""

    engine: str
    command: str
    model: str = "m"
    listed: bool = False
    tokens: bool = True
    accused: frozenset[str] = frozenset()
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def program(self) -> str:
        return os.environ.get(f"QUALGATE_SERVERS_{self.engine.upper()}", "")

    def started_by(self, folder: Path | str) -> str:
        return self.command.format(program=self.program, folder=folder, port="{port}")


SGLANG = (
    "{program} -m sglang.launch_server --model-path {folder} --served-model-name m --port {port} --device cpu "
    "--attention-backend torch_native --sampling-backend pytorch --disable-overlap-schedule --disable-cuda-graph "
    "--max-total-tokens 8192 --enable-metrics --sleep-on-idle --tool-call-parser hermes --dtype "
)
VLLM = (
    "{program} -m vllm.entrypoints.openai.api_server --model {folder} --served-model-name m --port {port} "
    "--enforce-eager --max-model-len 1024 --enable-auto-tool-choice --tool-call-parser hermes --dtype "
)
LLAMACPP = f"{{program}} {HERE / 'llamacpp_server.py'} {{folder}} "
OFFLINE = {"HF_HUB_OFFLINE": "1"}
SERVERS = {
    "vllm": Server(
        engine="vllm",
        command=VLLM + "float32",
        listed=True,
        variables={
            "VLLM_CPU_OMP_THREADS_BIND": "nobind",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "OMP_NUM_THREADS": "1",
            **OFFLINE,
        },
    ),
    "sglang": Server(
        engine="sglang", command=SGLANG + "float32", listed=True, variables={"SGLANG_USE_CPU_ENGINE": "1", **OFFLINE}
    ),
    "llamacpp F32": Server(engine="llamacpp", command=LLAMACPP + "F32 {port}"),
    "llamacpp Q8_0": Server(engine="llamacpp", command=LLAMACPP + "Q8_0 {port}"),
    "transformers": Server(  # by messages, which is all that it takes; it goes on behind a stop text
        engine="transformers",
        command="{program} serve --port {port} --device cpu --dtype float32",
        model="support",
        tokens=False,
        accused=frozenset({"stop"}),
        variables=OFFLINE,
    ),
}

pytestmark = pytest.mark.servers


def those(wanted: Callable[[Server], bool] = lambda server: True) -> pytest.MarkDecorator:
    """The test is run with each of them, on one server of each kind for all tests."""
    names = [name for name, server in SERVERS.items() if wanted(server)]
    return pytest.mark.parametrize("server", names, indirect=True, scope="module")


@pytest.fixture(scope="module")
def server(request) -> Iterator[Server]:
    found = SERVERS[request.param]
    if not found.program:
        pytest.skip(f"QUALGATE_SERVERS_{found.engine.upper()} names no program that serves")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in found.variables.items():
            patch.setenv(name, value)
        yield found


@contextmanager
def serving(server: Server, command: str, folder: Path = HERE) -> Iterator[ArmSpec]:
    served = Served(
        command=command,
        engine=server.engine,
        tokenizer=str(MODEL) if server.tokens else "",
        prompt_logprobs=20 if server.listed else 0,
    )
    with running(ArmSpec(name="baseline", model=server.model, served=served), folder, lambda: False) as started:
        assert started is not None
        yield started


@pytest.fixture(scope="module")
def arm(server, tmp_path_factory) -> Iterator[ArmSpec]:
    folder = tmp_path_factory.mktemp("served")
    shutil.copytree(MODEL, folder / "support")
    (folder / "hub" / "hub").mkdir(parents=True)  # `transformers` lists what lies there: 500 where nothing does
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HF_HOME", str(folder / "hub"))
        with serving(server, server.started_by(MODEL), folder) as started:
            yield started


@pytest.fixture(scope="module")
def by_tokens(server) -> tuple[Prompt, ...]:
    sets = ("tool_calls", "arithmetic") if server.tokens else ("arithmetic",)
    return tuple(asked_of({"a": sets}, CASES)["a"])


@pytest.fixture(scope="module")
def prompts(server, by_tokens) -> tuple[Prompt, ...]:
    return by_tokens if server.tokens else by_messages(by_tokens)


def by_messages(prompts: tuple[Prompt, ...]) -> tuple[Prompt, ...]:
    """The same cases, whose tokens the server makes, and whose calls its parser reads."""
    bodies = {case.id: case.body for name in ("tool_calls", "arithmetic") for case in load(name, Path.cwd()).cases}
    said = [{name: bodies[one.key.case_id].get(name) for name in ("messages", "tools")} for one in prompts]
    asked = [json.dumps({**{name: what for name, what in one.items() if what}, "dialect": "hermes"}) for one in said]
    return tuple(replace(one, token_ids=(), asked=what) for one, what in zip(prompts, asked, strict=True))


@pytest.fixture(scope="module")
def ours(by_tokens, tmp_path_factory) -> JobResult:
    return answered_here(by_tokens, tmp_path_factory.mktemp("here"))


def answered_here(prompts: tuple[Prompt, ...], cache: Path, model: str = str(MODEL), **arm: str) -> JobResult:
    """What our engine answers."""
    spec = ArmSpec(**{"name": "baseline", "model": model, "dtype": "float32"} | arm)
    here = load_arm(spec, cache, {}, device="cpu")
    return run_job(here, Job(index=0, arm=spec, prompts=prompts, artifact="", drafted=False))


def of(arm: ArmSpec, **more: object) -> ArmSpec:
    assert arm.served is not None
    return replace(arm, served=replace(arm.served, **more))


def answered(arm: ArmSpec, prompts: tuple[Prompt, ...], artifact: Path | str = "", name: str = "baseline") -> JobResult:
    given = tuple(replace(one, key=replace(one.key, arm=name)) for one in prompts)
    job = Job(index=0, arm=replace(arm, name=name), prompts=given, artifact=str(artifact), drafted=name != "baseline")
    return run_served(job, {"temperature": 0}, AT_ONCE)


def ids(result: JobResult) -> list[tuple[int, ...]]:
    return [one.token_ids for one in result.completions]


def alike(one: JobResult, other: JobResult) -> int:
    """Answers of the same tokens, or texts where a server tells no tokens."""
    tokens = any(ids(other))
    pairs = zip(one.completions, other.completions, strict=True)
    return sum(a.token_ids == b.token_ids if tokens else a.text == b.text for a, b in pairs)


@pytest.fixture(scope="module")
def place(server, tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("run") / "job-00000.safetensors"


@pytest.fixture(scope="module")
def baseline(arm, prompts, place) -> JobResult:
    return answered(arm, prompts, place)


@those()
def test_it_says_what_our_engine_says(server, baseline, prompts, ours):
    assert alike(ours, baseline) >= len(prompts) - 1  # a near tie, at the most; so eight bits
    assert baseline.generation.engine.startswith(server.engine)
    assert all(one.token_ids for one in baseline.completions) or not server.listed
    assert {one.finish_reason for one in baseline.completions} <= {"eos", "stop"}, "none is cut off"


@those(lambda server: server.listed)
def test_it_reads_its_own_answers_as_it_said_them(arm, baseline, prompts, place):
    """All of them, though SGLang names the last token of this vocabulary, which ends each call, as another."""
    again = answered(arm, prompts, place, "again")
    assert ids(again) == ids(baseline)
    assert all(one.top1_agreement == 1.0 and min(one.kl) < 1e-6 for one in again.drifts)
    assert again.generation.tokens < 0.5 * sum(map(len, ids(baseline)))


@those()
def test_its_probes_find_what_is_wrong_with_it_and_nothing_else(server, arm, prompts):
    found = {one.name: one for one in probe(arm, prompts, AT_ONCE)}
    accused = {name for name, one in found.items() if one.fault}
    assert accused == set() if not server.accused else server.accused <= accused
    assert server.engine not in ("vllm", "sglang") or found["log-probs"].values


@those(lambda server: server.engine == "llamacpp")
def test_what_it_is_asked_at_once_it_answers_though_it_closes_its_connections(arm, prompts):
    """Behind each answer that it streams, and without a word: every second request went into a closed one."""
    many = tuple(replace(one, key=replace(one.key, repeat=at)) for at in range(8) for one in prompts)
    assert len(answered(arm, many).completions) == len(many)


sglang = those(lambda server: server.engine == "sglang")


@sglang
def test_whole_answers_are_those_that_it_streams(arm, baseline, prompts):
    assert ids(answered(of(arm, stream=False, prompt_logprobs=0), prompts)) == ids(baseline)


@sglang
@pytest.mark.parametrize("stream", [True, False])
def test_chats_and_calls_that_its_parser_read_say_what_our_engine_says(arm, prompts, ours, stream):
    found = answered(of(arm, stream=stream, tokenizer="", prompt_logprobs=0), by_messages(prompts))
    same = [one.text == other.text for one, other in zip(ours.completions, found.completions, strict=True)]
    assert sum(same) >= 2 * CASES - 1
    assert [one.prompt_tokens for one in found.completions] == [one.prompt_tokens for one in ours.completions]
    assert all(one.counted for one in found.completions)


@sglang
def test_no_probe_accuses_it_by_messages(arm, prompts):
    found = {one.name: one for one in probe(of(arm, tokenizer="", prompt_logprobs=0), by_messages(prompts), AT_ONCE)}
    assert [one.fault for one in found.values() if one.fault] == []
    assert "tools" in found
    assert found["log-probs"].values


@sglang
def test_a_text_ends_its_answer(arm, baseline, prompts):
    stopped = tuple(replace(one, until=("er",)) for one in prompts)
    found = answered(of(arm, prompt_logprobs=0), stopped)
    for one, whole in zip(found.completions, baseline.completions, strict=True):
        assert one.text == whole.text.partition("er")[0]
        assert one.finish_reason == ("stop" if "er" in whole.text else "eos")


@sglang
def test_what_it_draws_is_held_against_the_odds_that_it_tells(arm, prompts):
    drawn = tuple(replace(one, sampling=Sampling(temperature=1.0)) for one in prompts)
    found = answered(of(arm, prompt_logprobs=0), drawn)
    assert found.generation.drawing, "its log-probs were told"
    # Without its deterministic mode, which these layers do not have, it heeds no seed; two draws may be alike.
    assert {one.name for one in probe(arm, drawn, AT_ONCE) if one.fault} <= {"seed"}


@sglang
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


@those(lambda server: server.engine == "vllm")
def test_a_folder_in_int4_says_what_our_engine_says_of_it_as_served(server, prompts, tmp_path):
    made = qualgate("quantize", "reference", "--method", "int4", "--group-size", "32", "--out", "int4", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    folder = str(tmp_path / "int4")
    with serving(server, server.started_by(folder).replace("float32", "bfloat16")) as arm:
        theirs = answered(arm, prompts)
    here = answered_here(prompts, tmp_path, folder, dtype="bfloat16", arithmetic="served")
    assert alike(here, theirs) >= len(prompts) - 3


def rounded(folder: Path, levels: int = 7) -> Path:
    """The reference model in so many levels on either side of zero (7: four bits), written as plain numbers: what a
    server loads on any CPU."""
    shutil.copytree(MODEL, folder)
    weights = load_file(folder / "model.safetensors")
    for name, weight in weights.items():
        if name.endswith("proj.weight"):
            groups = weight.float().reshape(-1, 32)
            step = groups.abs().amax(1, keepdim=True).clamp(min=1e-9) / levels
            weights[name] = (groups / step).round().mul(step).reshape(weight.shape).to(weight.dtype)
    save_file(weights, folder / "model.safetensors", {"format": "pt"})
    return folder


@sglang
def test_a_gate_between_two_of_its_servers_judges_answers_and_drift(server, tmp_path):
    told = {"model": "m", "engine": server.engine, "tokenizer": "reference", "prompt_logprobs": 20}
    rules = [{"metric": "tool_call.correct", "max_drop": 0.1}, {"metric": "drift.top1_agreement", "min": 0.9}]
    gate = {
        "version": 1,
        "baseline": {"serve": server.started_by(MODEL), **told},
        "variants": {"fewer": {"serve": server.started_by(rounded(tmp_path / "fewer")), **told}},
        "evalsets": ["tool_calls"],
        "gate": {"rules": rules},
    }
    (tmp_path / "gate.yaml").write_text(json.dumps(gate))
    done = qualgate("run", "gate.yaml", "--json", "--limit", "24", cwd=tmp_path)
    assert done.returncode == Exit.UNDECIDED, done.stderr  # a trial
    found = json.loads(done.stdout)
    for one in found["arms"]:
        assert (one["done"], one["errors"]) == (24, 0)
        assert one["footprint"]["generation"]["engine"].startswith(server.engine)
        assert [probe["name"] for probe in one["footprint"]["probes"] if probe["fault"]] == []
    compared = {one["metric"]: one for one in found["verdicts"][0]["comparisons"]}
    assert compared["drift.top1_agreement"]["n"] == 24
    assert compared["tool_call.correct"]["baseline"] > 0.9


MANY = 40


@those(lambda server: server.engine in ("vllm", "sglang"))
@pytest.mark.parametrize("stream", [True, False])
def test_a_gate_by_messages_killed_twice_stores_what_its_servers_say_by_hand(server, arm, tmp_path, stream):
    """40 cases: calls are those that the server's own parser read, and no stored answer is asked again."""
    with serving(server, server.started_by(rounded(tmp_path / "fewer")), tmp_path) as fewer:
        addresses = {"baseline": arm.served.endpoint, "fewer": fewer.served.endpoint}
        told = {name: {"endpoint": to, "model": "m", "engine": server.engine, "stream": stream, "concurrency": 4}
                for name, to in addresses.items()}  # fmt: skip
        gate = {
            "version": 1, "baseline": told["baseline"], "variants": {"fewer": told["fewer"]},
            "evalsets": ["./calls.yaml"],
            "gate": {"noise_floor": False, "rules": [{"metric": "tool_call.served", "max_drop": 0.15}]},
            "store": "sqlite:///run.db",
        }  # fmt: skip
        cases = [dict(case.body) for case in load("tool_calls", tmp_path).cases[:MANY]]
        (tmp_path / "gate.yaml").write_text(json.dumps(gate))
        (tmp_path / "calls.yaml").write_text('{"name": "calls", "version": "1", "metrics": ["tool_call.served"]}')
        (tmp_path / "calls.jsonl").write_text("".join(f"{json.dumps(case)}\n" for case in cases))
        earlier = [killed_at(tmp_path, answers) for answers in (MANY // 4, MANY)]
        done = qualgate("run", "gate.yaml", "--json", cwd=tmp_path)
        assert done.returncode in (Exit.APPROVE, Exit.UNDECIDED), done.stderr
        for name, address in addresses.items():
            assert stored(tmp_path, name) == by_hand(address, "m", cases)
    rows = answers_so_far(tmp_path)
    assert len(rows) == 2 * MANY
    assert earlier[0] <= earlier[1] <= rows
    arms = json.loads(done.stdout)["arms"]
    assert {one["footprint"]["generation"]["asked_whole"] for one in arms} <= {"", REPEATS}, "no server is blamed"
    [verdict] = json.loads(done.stdout)["verdicts"]
    assert [one["baseline"] for one in verdict["comparisons"] if one["metric"] == "tool_call.served"] == [1.0]


def killed_at(folder: Path, answers: int) -> set[tuple[str, ...]]:
    """Run the gate until it has stored so many answers, kill it, and return them."""
    command = [sys.executable, "-m", "qualgate", "run", "gate.yaml"]
    with subprocess.Popen(command, cwd=folder, start_new_session=True, stderr=subprocess.DEVNULL) as run:
        while run.poll() is None and len(answers_so_far(folder)) < answers:
            time.sleep(0.2)
        assert run.poll() is None, "it ended before"
        os.killpg(run.pid, signal.SIGKILL)
    return answers_so_far(folder)


def answers_so_far(folder: Path) -> set[tuple[str, ...]]:
    """Arm, case, and id and time of the reply, of each stored answer."""
    if not (folder / "run.db").exists():
        return set()
    with closing(sqlite3.connect(folder / "run.db")) as store:
        if not store.execute("SELECT 1 FROM sqlite_master WHERE name = 'units'").fetchone():
            return set()
        return set(store.execute("SELECT arm, case_id, reply, began FROM units WHERE status = 'done'").fetchall())
