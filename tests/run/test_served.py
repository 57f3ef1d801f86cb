"""Arms that are served, end to end: judged as the same weights are that are generated here."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from qualgate.errors import Exit
from qualgate.gate.causes.noise_floor import UNMEASURED
from tests.command_line import in_a_process, qualgate
from tests.run.commands import rows
from tests.served.scripted import Reply, Scripted, as_json, scripted, sound, text_piece
from tests.served.server.serving import serving

ANSWERS = (
    "SELECT evalset, case_id, text, finish_reason, token_ids, prompt_tokens FROM units WHERE arm = '{}' ORDER BY 1, 2"
)
SCORES = (
    "SELECT case_id, metric, value, verdict, error_type, extracted, reason, scorer "
    "FROM units JOIN scores USING (unit_id) WHERE arm = '{}' ORDER BY 1, 2"
)
RULES = """\
evalsets: [./echo.yaml]
gate: {rules: [{metric: exact_match, max_drop: 0.10}]}
workers: {count: 1}
"""


@pytest.fixture(scope="module")
def models(made, tmp_path_factory) -> Path:
    """The workspace's folder, with its model and another that is damaged."""
    folder = Path(shutil.copytree(made, tmp_path_factory.mktemp("models"), dirs_exist_ok=True))
    shutil.copytree(folder / "model", folder / "damaged")
    weights = load_file(folder / "damaged" / "model.safetensors")
    torch.manual_seed(0)
    noisy = {name: one + 0.3 * one.std() * torch.randn(one.shape) for name, one in weights.items() if one.dim() > 1}
    save_file(weights | noisy, folder / "damaged" / "model.safetensors", metadata={"format": "pt"})
    return folder


@pytest.fixture(scope="module")
def addresses(models, tmp_path_factory):
    cache = tmp_path_factory.mktemp("cache")
    with (
        serving(models / "model", "support", cache) as (one, _),
        serving(models / "damaged", "damaged", cache) as (other, _),
    ):
        yield one, other


@pytest.fixture
def workspace(models, tmp_path) -> Path:
    """With the cases, and the folders of the models where they are."""
    for name in ("echo.yaml", "echo.jsonl"):
        shutil.copy(models / name, tmp_path)
    for name in ("model", "damaged"):
        (tmp_path / name).symlink_to(models / name)
    return tmp_path


def write(workspace: Path, arms: str, rules: str = RULES) -> None:
    (workspace / "gate.yaml").write_text(f"version: 1\n{arms}{rules}store: sqlite:///qualgate.db\n")


def run(workspace: Path, arms: str, rules: str = RULES):
    write(workspace, arms, rules)
    return qualgate("run", "gate.yaml", "--json", cwd=workspace)


def words(done) -> dict[str, str]:
    return {verdict["variant"]: verdict["word"] for verdict in json.loads(done.stdout)["verdicts"]}


DRIFT = (
    "SELECT case_id, kl, kl_upper, top1_agreement, first_divergence, length_ratio "
    "FROM units WHERE arm = 'damaged' ORDER BY 1"
)
LISTED = (
    "baseline: {{endpoint: '{0}', model: support, tokenizer: ./model, engine: vllm, prompt_logprobs: {2}}}\n"
    "variants: {{damaged: {{endpoint: '{1}', model: damaged, tokenizer: ./model, {3}prompt_logprobs: {2}}}}}\n"
)
RULES_ON_DRIFT = RULES.replace(
    "max_drop: 0.10}", "max_drop: 0.10}, {metric: drift.kl_mean, max: 0.001}, {metric: drift.top1_agreement, min: 0.9}"
)


HERE = "baseline: {model: ./model, dtype: float32}\nvariants: {damaged: {model: ./damaged, dtype: float32}}\n"


@pytest.fixture(scope="module")
def here(models, tmp_path_factory) -> tuple[dict[str, list], list[tuple]]:
    """Answers and scores by arm, and drift, of the engine in process."""
    folder = Path(shutil.copytree(models, tmp_path_factory.mktemp("here"), dirs_exist_ok=True))
    done = run(folder, HERE, RULES_ON_DRIFT)
    assert (done.returncode, words(done)) == (Exit.BLOCK, {"damaged": "block"}), done.stderr
    told = {arm: [rows(folder, query.format(arm)) for query in (ANSWERS, SCORES)] for arm in ("baseline", "damaged")}
    assert told["baseline"] != told["damaged"]
    return told, rows(folder, DRIFT)


def test_the_verdict_and_every_answer_of_servers_are_those_of_the_engine_in_process(workspace, addresses, here):
    """Of weights here, of the same that are served, and of others that are."""
    one, other = addresses
    served = run(
        workspace,
        f"baseline: {{model: ./model, dtype: float32}}\nvariants:\n"
        f"  same: {{endpoint: '{one}', model: support, tokenizer: ./model}}\n"
        f"  damaged: {{endpoint: '{other}', model: damaged, tokenizer: ./model, stream: false}}\n",
    )
    assert served.returncode == Exit.BLOCK, served.stderr
    assert words(served) == {"same": "approve", "damaged": "block"}
    for arm, told in (("baseline", "baseline"), ("same", "baseline"), ("damaged", "damaged")):
        assert [rows(workspace, query.format(arm)) for query in (ANSWERS, SCORES)] == here[0][told]
    again = qualgate("gate", "gate.yaml", "--json", cwd=workspace)  # of the stored run: no server is asked
    assert words(again) == words(served)


@pytest.mark.parametrize(("k", "engine"), [(2, "engine: vllm, "), pytest.param(-1, "", marks=pytest.mark.proof)])
def test_drift_is_read_of_what_servers_list_and_drafts_change_no_answer(k, engine, workspace, addresses, here):
    told, drifts = here
    served = run(workspace, LISTED.format(*addresses, k, engine), RULES_ON_DRIFT)
    assert served.returncode == Exit.BLOCK, served.stderr
    assert "agreement exactly, KL as an interval" in " ".join(served.stderr.split())
    assert rows(workspace, ANSWERS.format("damaged")) == told["damaged"][0]
    for (case, kl, _, *same), (case_too, least, most, *same_too) in zip(drifts, rows(workspace, DRIFT), strict=True):
        assert (case, same) == (case_too, same_too)
        true, low, high = (np.abs(np.frombuffer(blob)) for blob in (kl, least, most))
        assert (low <= true).all()
        assert (true <= high).all()
        assert np.isfinite(high).all()
        if k < 0:
            assert np.abs(high - low).max() < 1e-3
    [verdict] = json.loads(served.stdout)["verdicts"]
    assert "drift.kl_mean" not in verdict["drift"]
    assert verdict["drift"]["drift.kl_mean_least"] > 0.001
    accepted = rows(workspace, "SELECT sum(baseline_accepted) FROM units WHERE arm = 'damaged'")
    assert accepted[0][0] > 0


SUPPORT = "baseline: {{endpoint: '{0}', model: support}}\nvariants: {{again: {{endpoint: '{1}', model: damaged}}}}\n"


def test_arms_without_a_tokenizer_are_asked_by_messages_and_text_and_their_noise_by_asking_again(workspace, addresses):
    done = run(workspace, SUPPORT.format(*addresses))
    assert (done.returncode, words(done)) == (Exit.BLOCK, {"again": "block"}), done.stderr
    shown = qualgate("report", "gate.yaml", cwd=workspace).stdout
    assert "served at 127.0.0.1" in shown
    assert "which declares and nobody here checked: damaged, root" in " ".join(shown.split())
    assert rows(workspace, ANSWERS.format("baseline")) == rows(workspace, ANSWERS.format("baseline@aa"))
    assert reasons(done)[-1].startswith("noise floor, lost / gained of the variant and of the baseline against itself")


def reasons(done) -> list[str]:
    [verdict] = json.loads(done.stdout)["verdicts"]
    return verdict["reasons"]


def echo(body: dict) -> Reply:
    usage = {"prompt_tokens": 4, "completion_tokens": 1}
    return as_json({**text_piece("x", "stop"), "usage": usage})


SCRIPTED = "baseline: {{endpoint: '{0}', model: m{2}}}\nvariants: {{v: {{endpoint: '{1}', model: m{2}}}}}\n"


@pytest.fixture
def pair() -> Iterator[tuple[Scripted, Scripted]]:
    """The baseline's server and the variant's, which say x to everything."""
    with scripted(otherwise=echo) as one, scripted(otherwise=echo) as two:
        yield one, two


def arms(pair: tuple[Scripted, Scripted], more: str = "") -> str:
    return SCRIPTED.format(*(server.address for server in pair), more)


def test_noise_that_a_gate_file_leaves_out_is_said_to_be_unknown(workspace, pair):
    done = run(workspace, arms(pair), rules=RULES.replace("gate: {", "gate: {noise_floor: false, "))
    assert len(pair[0].asked) == len(pair[1].asked)
    assert reasons(done).count(UNMEASURED) == 1
    again = qualgate("gate", "gate.yaml", "--json", cwd=workspace)
    assert reasons(again).count(UNMEASURED) == 1


def test_texts_of_servers_that_tell_no_tokens_are_compared(workspace, pair):
    answers = {row["prompt"]: row["answer"] for row in map(json.loads, (workspace / "echo.jsonl").open())}
    pair[0].otherwise = pair[1].otherwise = lambda body: as_json(text_piece(answers[body["prompt"]], "stop"))
    found = reasons(run(workspace, arms(pair)))
    assert any("texts equal the baseline's" in reason for reason in found), found


def test_a_server_that_does_not_say_the_same_twice_is_seen(workspace, pair):
    answers = {row["prompt"]: row["answer"] for row in map(json.loads, (workspace / "echo.jsonl").open())}
    asked: dict[str, int] = {}

    def wavering(body: dict) -> Reply:
        """Right the first time, wrong the second to every fourth case."""
        asked[body["prompt"]] = asked.get(body["prompt"], 0) + 1
        wrong = asked[body["prompt"]] > 1 and list(answers).index(body["prompt"]) % 4 == 0
        return as_json(text_piece("?" if wrong else answers[body["prompt"]], "stop"))

    pair[0].otherwise = wavering
    assert "and 15 / 0 of 60" in reasons(run(workspace, arms(pair)))[-1]


def of_server(done) -> dict[str, dict[str, dict]]:
    """Arm → its probes by name, as a report holds them."""
    return {
        arm["name"]: {one["name"]: one for one in arm["footprint"]["probes"]} for arm in json.loads(done.stdout)["arms"]
    }


def test_what_servers_show_before_their_cases_is_stored_and_reported(workspace, pair):
    pair[1].probes = partial(sound, greedy=True, template=7, shift=0.25)
    done = run(workspace, arms(pair))
    assert done.returncode == Exit.UNDECIDED, done.stderr  # what is only a warning changes no verdict
    assert len(pair[0].probed) == len(pair[1].probed) > 0
    assert "v, probe of temperature: drawn answers are all alike" in done.stderr
    found = of_server(done)
    assert found["v"]["temperature"]["fault"].startswith("drawn answers are all alike")
    assert not any(probe["fault"] for probe in found["baseline"].values())
    shown = " ".join(qualgate("report", "gate.yaml", cwd=workspace).stdout.split())
    assert "v, probe of temperature: drawn answers are all alike" in shown
    assert "fixed prompts are 18, 16, 17 tokens here and 11, 9, 10 of the baseline" in shown
    assert "log-probs of a fixed text beside the baseline's: up to 0.25 nats apart" in shown
    assert re.search(r"baseline: nothing wrong by \d+ probes", shown)


def test_a_server_that_contradicts_its_arm_is_asked_no_case(workspace, pair):
    pair[1].probes = partial(sound, beyond=3)
    done = run(workspace, arms(pair))
    assert (done.returncode, pair[0].asked, pair[1].asked) == (Exit.USAGE, [], [])
    assert "v: its server ignores `max_tokens`" in done.stderr


def test_answers_that_do_not_come_leave_a_run_incomplete_and_are_asked_again(workspace, pair):
    busy = as_json({"error": "busy"}, 503, Retry_After="9999")
    pair[1].script += [busy] * 3  # two whose streams are checked are asked again with the others
    done = run(workspace, arms(pair))
    assert done.returncode == Exit.INFRASTRUCTURE, done.stderr
    assert words(done) == {"v": "invalid"}
    asked = len(pair[0].asked)
    again = run(workspace, arms(pair))
    assert again.returncode not in (Exit.INFRASTRUCTURE, Exit.APPROVE), again.stderr
    assert len(pair[0].asked) == asked  # what was answered is kept
    assert all(status == "done" for (status,) in rows(workspace, "SELECT status FROM units"))


def test_a_server_that_comes_back_with_another_model_breaks_the_runs_integrity(workspace, pair):
    """Between the plan and its first answer: here while the baseline is asked."""
    one, two = pair

    def replaced(body: dict) -> Reply:
        two.models = as_json({"data": [{"id": "m", "root": "./another"}]})
        return echo(body)

    one.otherwise = replaced
    done = run(workspace, arms(pair))
    assert done.returncode == Exit.INTEGRITY, done.stderr
    assert "arm 'v': served differ" in done.stderr


def test_a_server_whose_model_is_gone_breaks_the_runs_integrity(workspace, pair):
    _, two = pair

    def gone(body: dict) -> Reply:
        two.models = as_json({"data": [{"id": "n"}]})
        return as_json({"error": "no model m"}, 404)

    two.otherwise = gone
    done = run(workspace, arms(pair))
    assert done.returncode == Exit.INTEGRITY, done.stderr
    assert "the server changed during the run" in done.stderr


def test_a_prompt_that_is_too_long_is_named(workspace, pair):
    pair[1].otherwise = lambda body: as_json({"error": {"message": "maximum context length is 3 tokens"}}, 400)
    done = run(workspace, arms(pair))
    assert done.returncode == Exit.USAGE
    assert "maximum context length is 3 tokens" in done.stderr
    assert "echo/echo-0" in done.stderr


def test_one_case_that_fails_is_named_the_others_are_answered_and_it_alone_is_asked_again(workspace, pair):
    long = next(json.loads(line)["prompt"] for line in (workspace / "echo.jsonl").open())

    def but_one(body: dict) -> Reply:
        refuses = body["prompt"] == long
        return as_json({"error": {"message": "maximum context length is 3 tokens"}}, 400) if refuses else echo(body)

    pair[1].otherwise = but_one
    for _ in range(2):
        done = run(workspace, arms(pair))
        assert done.returncode == Exit.INFRASTRUCTURE, done.stderr
        told = " ".join(done.stderr.split())
        assert "could not run: v: echo/echo-000: v (http" in told, told
        assert "maximum context length is 3 tokens" in told
        assert rows(workspace, "SELECT arm, case_id FROM units WHERE status = 'error'") == [("v", "echo-000")]
        assert words(done) == {"v": "invalid"}
    assert len(pair[1].asked) == len(pair[0].asked) / 2 + 1  # the baseline's is asked of the A/A arm too
    pair[1].otherwise = echo
    assert run(workspace, arms(pair)).returncode not in (Exit.INFRASTRUCTURE, Exit.APPROVE)
    assert len(pair[1].asked) == len(pair[0].asked) / 2 + 2


def test_answers_of_a_server_that_changed_meanwhile_are_taken_back(workspace, pair):
    def changed(body: dict) -> Reply:
        pair[1].models = as_json({"data": [{"id": "m", "root": "./another"}]})
        return echo(body)

    pair[1].otherwise = changed
    assert run(workspace, arms(pair)).returncode == Exit.INTEGRITY
    left = rows(workspace, "SELECT status, text, sha256, count(*) FROM units WHERE arm = 'v' GROUP BY 1, 2, 3")
    assert [row[1:3] for row in left] == [(None, None)] * len(left)
    assert rows(workspace, "SELECT * FROM units JOIN scores USING (unit_id) WHERE arm = 'v'") == []


def test_the_key_is_kept_nowhere(workspace, pair):
    key = "sk-canary-0815"
    pair[1].script.append(as_json({"error": key}, 500))
    write(workspace, arms(pair, ", api_key_env: THE_KEY"))
    done = in_a_process("run", "gate.yaml", cwd=workspace, THE_KEY=key)
    assert {headers["Authorization"] for _, headers, _ in pair[1].asked} == {f"Bearer {key}"}
    assert done.returncode not in (Exit.USAGE, Exit.INFRASTRUCTURE), done.stderr
    assert key not in done.stdout + done.stderr
    for file in workspace.rglob("*"):
        assert not file.is_file() or key.encode() not in file.read_bytes(), file


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("model: mm", "serves no model 'mm'; did you mean 'm'?"),
        ("model: m, tokenizer: ./model", "is asked by messages"),
        ("model: m, api_key_env: NO_SUCH_KEY", "export NO_SUCH_KEY="),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_generated(change, said, workspace, pair):
    done = run(workspace, arms(pair).replace("model: m}}", f"{change}}}}}"))
    assert (done.returncode, pair[0].asked, pair[1].asked) == (Exit.USAGE, [], [])
    assert said in done.stderr


def test_a_plan_of_served_arms_says_what_is_known_before_they_are_asked(workspace, pair):
    write(workspace, arms(pair))
    done = qualgate("plan", "gate.yaml", cwd=workspace)
    assert pair[0].asked == pair[1].asked == []
    assert done.returncode in (Exit.APPROVE, Exit.UNDECIDED), done.stderr
    assert "every arm is served" in done.stdout
    assert "served at 127.0.0.1" in done.stdout


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ("{metric: drift.kl_mean, max: 0.1}", "needs the probabilities behind the answers"),
        ("{metric: latency.tpot, max_ratio: 1.1}", "a server's times are not judged yet"),
        ("{metric: memory.weights, max: 5}", "a server's weights and memory are not seen"),
        ("{metric: parity.tokens, min: 0.9}", "returns only text"),
    ],
)
def test_rules_that_could_never_be_decided_are_refused_by_plan(rule, said, workspace, pair):
    write(workspace, arms(pair), RULES.replace("}]", "}, " + rule + "]"))
    done = qualgate("plan", "gate.yaml", cwd=workspace)
    assert done.returncode == Exit.USAGE
    assert said in " ".join(done.stderr.split())


ECHO = """\
import http.server, json, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.say({"data": [{"id": "support"}], "version": "3"})
    def do_POST(self):
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.say({"choices": [{"index": 0, "text": asked["prompt"][:3], "finish_reason": "stop"}]})
    def say(self, what):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(what).encode())
    def log_message(self, *_): ...
http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
"""


def test_a_command_is_started_asked_and_ended(workspace):
    (workspace / "echo.py").write_text(ECHO)
    command, mode = f"{sys.executable} echo.py {{port}} --of-this-test", "--enable-deterministic-inference"
    done = run(
        workspace,
        f"baseline: {{serve: '{command} 1', model: support}}\n"
        f"variants: {{v: {{serve: '{command} 2 {mode}', engine: ours, model: support, stream: false}}}}\n",
    )
    assert done.returncode == Exit.UNDECIDED, done.stderr  # it is right on nothing, so it can show no loss
    assert rows(workspace, ANSWERS.format("baseline")) == rows(workspace, ANSWERS.format("v"))
    [arm] = [arm for arm in json.loads(done.stdout)["arms"] if arm["name"] == "v"]
    assert arm["footprint"]["generation"]["engine"] == "ours 3"
    assert arm["identity"]["served"] == f"{command} 2 {mode}"
    shown = " ".join(qualgate("report", "gate.yaml", cwd=workspace).stdout.split())
    assert f"v: started in SGLang's deterministic mode ({mode})" in shown
    assert "baseline: started in" not in shown
    assert not [one for one in running() if "--of-this-test" in one]


def test_a_started_server_of_another_model_is_the_users_and_nothing_changed_during_the_run(workspace):
    (workspace / "echo.py").write_text(ECHO)
    command = f"{sys.executable} echo.py {{port}}"
    arms = [f"{{serve: '{command} {number}', model: other}}" for number in (1, 2)]
    done = run(workspace, f"baseline: {arms[0]}\nvariants: {{v: {arms[1]}}}\n")
    assert done.returncode == Exit.USAGE, done.stderr
    assert "serves no model 'other'; it serves 'support'" in " ".join(done.stderr.split())
    assert "changed during the run" not in done.stderr


def running() -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            found.append(process.read_bytes().replace(b"\0", b" ").decode("utf-8", "replace"))
    return found


def test_a_gateway_whose_cache_forgets_the_model_is_found(workspace):
    cache: dict[str, Reply] = {}

    def cached(body: dict) -> Reply:
        who = {"id": f"cmpl-{len(cache)}", "created": 1, "model": body["model"]}
        return cache.setdefault(body["prompt"], as_json({**text_piece("x", "stop"), **who}))

    listed = as_json({"object": "list", "data": [{"id": "base"}, {"id": "quant"}]})
    with scripted(otherwise=cached, models=listed) as gateway:
        one, other = (f"{{endpoint: '{gateway.address}', model: {name}}}" for name in ("base", "quant"))
        done = run(workspace, f"baseline: {one}\nvariants: {{v: {other}}}\n")
    assert done.returncode == Exit.UNDECIDED
    assert "60 replies name base, which baseline asks for" in reasons(done)[0]
    assert any("60 replies of v and of baseline are the same, with id" in reason for reason in reasons(done))
    shown = " ".join(qualgate("report", "gate.yaml", cwd=workspace).stdout.split())
    assert "60 replies name base" in shown
