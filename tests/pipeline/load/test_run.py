"""`qualgate load` from a gate file to its tables, of servers that answer as a test scripts them."""

from __future__ import annotations

import json
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from qualgate.config import load_gate_file
from qualgate.errors import Exit, InfrastructureError, IntegrityError, UsageError
from qualgate.pipeline.load.definitions import QUALGATE, VLLM
from qualgate.pipeline.load.run import Loaded, measure
from qualgate.pipeline.load.summary import summarised
from tests.command_line import qualgate
from tests.pipeline.load.conftest import SHORT, answers
from tests.served.scripted import MODELS, Reply, Scripted, as_json, scripted
from tests.tiny_sets import write_set

PROMPTS = [f"say {n}" for n in range(6)]
QUICK = "{concurrency: [2], seconds: 1, warmup: 0, cooldown: 0, rounds: 1}"


def gate_file(folder: Path, baseline: str, variant: str, load: str = QUICK, **more: str) -> Path:
    write_set(folder, "c", PROMPTS)
    lines = [
        "version: 1",
        f"baseline: {baseline}",
        f"variants: {{awq: {variant}}}",
        "evalsets: [./c.yaml]",
        "gate: {rules: [{metric: exact_match, max_drop: 0.02}]}",
        f"load: {load}",
        *(f"{key}: {value}" for key, value in more.items()),
    ]
    path = folder / "gate.yaml"
    path.write_text("\n".join(lines) + "\n")
    return path


def at(server: Scripted, **more: str) -> str:
    said = "".join(f", {key}: {value}" for key, value in more.items())
    return f'{{endpoint: "{server.address}", model: m{said}}}'


def loaded(path: Path) -> Loaded:
    return measure(load_gate_file(path))


def test_two_arms_are_measured_shown_and_kept(tmp_path, servers):
    one, other = servers
    done = qualgate("load", str(gate_file(tmp_path, at(one), at(other), slo="{ttft: 10, e2e: 10}")))
    assert done.returncode == Exit.APPROVE, done.stderr
    assert {body["prompt"] for _, _, body in one.asked} == set(PROMPTS)
    for said in ("2 at once", "baseline", "awq", "TTFT", "TPOT", "end to end", "100.0 % [", "each prompt was asked"):
        assert said in done.stdout
    assert "round 1 of 1: awq, 2 at once" in done.stderr
    kept = tmp_path / "qualgate-reports"
    result = json.loads((kept / "load.json").read_text())
    assert [(row["arm"], row["label"]) for row in result["rows"]] == [("baseline", "2 at once"), ("awq", "2 at once")]
    requests = [json.loads(line) for line in (kept / "load.jsonl").read_text().splitlines()]
    for row in result["rows"]:
        mine = [one for one in requests if one["arm"] == row["arm"] and one["due"] < SHORT]
        assert row["requests"] == row["answered"] == len(mine) > 0
        assert row["times"]["tpot"]["p50"]["count"] == len(mine)
        assert row["good"]["share"] == 1.0
    picture = ElementTree.fromstring((kept / "load.svg").read_text())
    texts = " ".join(element.text or "" for element in picture.iter("{http://www.w3.org/2000/svg}text"))
    for said in ("baseline", "awq", "TTFT, 95th percentile, ms", "2 at once", "output tokens a second"):
        assert said in texts


def test_an_arm_that_never_answers_is_not_measured(tmp_path, servers):
    one, other = servers
    other.otherwise = lambda body: as_json({}, 503)
    done = qualgate("load", str(gate_file(tmp_path, at(one), at(other))), "--json")
    assert done.returncode == Exit.INFRASTRUCTURE
    assert "not one answer counts of awq at 2 at once" in done.stderr
    row = json.loads(done.stdout)["rows"][1]
    assert row["answered"] == 0
    assert row["failed"] == {"status 503": row["requests"]}
    assert all(not found for found in row["times"].values())


def test_one_measurement_is_told_by_whose_definitions_are_asked(tmp_path, servers):
    found = loaded(gate_file(tmp_path, *map(at, servers)))
    ours, theirs = (summarised(found, by, None, 0.05).rows[0].numbers for by in (QUALGATE, VLLM))
    stage = found.stages["baseline", found.levels[0]][0]
    assert ours.seconds == pytest.approx(SHORT)
    assert theirs.seconds == max(one.ended for one in stage.sent) - stage.start
    assert theirs.requests == len(stage.sent)


def test_arms_are_asked_the_same_at_the_same_times_in_an_open_loop(tmp_path, servers):
    load = "{rate: [60], burstiness: 0.5, seconds: 1, warmup: 0, cooldown: 0, rounds: 1}"
    found = loaded(gate_file(tmp_path, *map(at, servers), load))
    bodies = [Counter(body["prompt"] for _, _, body in server.asked) for server in servers]
    stages = [found.stages[arm, found.levels[0]][0] for arm in ("baseline", "awq")]
    dues = [[sent.due - stage.start for sent in stage.sent] for stage in stages]
    assert dues[0] == pytest.approx(dues[1])
    assert [sent.prompt for sent in stages[0].sent] == [sent.prompt for sent in stages[1].sent]
    assert bodies[0] == bodies[1]


def test_a_trace_asks_its_cases_and_bounds_their_answers(tmp_path, servers):
    rows = {"at": 0, "case": "c-3", "max_tokens": 2}, {"at": 5}, {"at": 10, "case": "c-5", "evalset": "c"}
    (tmp_path / "t.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    load = "{trace: t.jsonl, speed: 100, warmup: 0, cooldown: 0, rounds: 1}"
    found = loaded(gate_file(tmp_path, *map(at, servers), load))
    asked = sorted((body["prompt"], body["max_tokens"]) for _, _, body in servers[0].asked)
    assert len(asked) == 3
    assert {("say 3", 2), ("say 5", 4)} <= set(asked)
    assert [level.label for level in found.levels] == ["trace x100"]


def test_requests_that_are_closed_are_told_apart_and_a_server_without_counters_says_so(tmp_path, servers):
    load = "{concurrency: [2], seconds: 1, warmup: 0, cooldown: 0, rounds: 1, cancel: 0.5}"
    summary = summarised(loaded(gate_file(tmp_path, *map(at, servers), load)), QUALGATE, None, 0.05)
    numbers = summary.rows[0].numbers
    assert numbers.closed > 0
    assert numbers.requests == numbers.answered + numbers.closed
    assert any("whether its server goes on is not known" in note for note in summary.notes)


def test_a_server_that_changes_meanwhile_spoils_what_was_measured(tmp_path, servers):
    def change(body: dict[str, Any]) -> Reply:
        servers[1].models = as_json({"data": [{**MODELS["data"][0], "root": "./other"}]})
        return answers(body)

    servers[1].otherwise = change
    with pytest.raises(IntegrityError, match=r"awq: its server declared .* it changed"):
        loaded(gate_file(tmp_path, *map(at, servers)))


def test_servers_that_are_started_run_one_after_the_other_for_all_their_levels(tmp_path, servers):
    (tmp_path / "server.py").write_text(STARTED)
    command = f"{sys.executable} server.py {{port}}"
    arms = [f'{{serve: "{command} {name}", model: m}}' for name in ("a", "b")]
    load = "{concurrency: [1, 2], seconds: 1, warmup: 0, cooldown: 0, rounds: 1}"
    found = loaded(gate_file(tmp_path, arms[0], arms[1], load))
    assert len(found.stages) == 4
    assert all(stage.sent for stages in found.stages.values() for stage in stages)
    runs = (tmp_path / "runs").read_text().split()
    assert sorted(runs) == ["begin-a", "begin-b", "end-a", "end-b"]
    assert [run.partition("-")[0] for run in runs] == ["begin", "end"] * 2


STARTED = """\
import http.server, json, pathlib, signal, sys
port, name = int(sys.argv[1]), sys.argv[2]
def log(what):
    with open("runs", "a") as file: file.write(f"{what}-{name}\\n")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.say(json.dumps({"data": [{"id": "m"}]}) if self.path == "/v1/models" else "{}", "application/json")
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        piece = {"choices": [{"index": 0, "text": "a", "finish_reason": "stop"}]}
        self.say(f"data: {json.dumps(piece)}\\n\\ndata: [DONE]\\n\\n", "text/event-stream")
    def say(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body.encode())
    def log_message(self, *_): ...
def end(*_):
    log("end")
    sys.exit(0)
signal.signal(signal.SIGTERM, end)
log("begin")
http.server.ThreadingHTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def test_what_cannot_be_loaded_is_refused_before_anything_is_asked(tmp_path, servers):
    with pytest.raises(UsageError, match="no arm is served"):
        loaded(gate_file(tmp_path, "{model: reference}", "{quantize: int8}"))
    one, other = servers
    path = str(gate_file(tmp_path, at(one), at(other)))
    (tmp_path / "taken").touch()
    for words, said in (
        (("--as", "theirs"), "qualgate, vllm, guidellm"),
        (("--out", str(tmp_path / "taken")), f"{tmp_path}/taken: it is a file, and a folder is needed"),
    ):
        refused = qualgate("load", path, *words)
        assert (refused.returncode, said in refused.stderr) == (Exit.USAGE, True), refused.stderr
    (tmp_path / "t.jsonl").write_text('{"at": 0}\n{"at": 3}\n')
    with pytest.raises(UsageError, match="it lasts 3 s, of which 5 s are warm-up"):
        loaded(gate_file(tmp_path, at(one), at(other), "{trace: t.jsonl}"))
    with pytest.raises(UsageError, match="SUPPORT_KEY, which is not set"):
        loaded(gate_file(tmp_path, at(one, api_key_env="SUPPORT_KEY"), at(other)))
    assert one.asked == other.asked == []
    with scripted() as gone:
        away = at(gone)
    with pytest.raises(InfrastructureError):
        loaded(gate_file(tmp_path, away, at(one)))


def test_a_case_that_a_server_refuses_is_named(tmp_path, servers):
    servers[1].otherwise = lambda body: as_json({"error": "too long"}, 400)
    with pytest.raises(UsageError, match=r"too long.*That is of c/c-"):
        loaded(gate_file(tmp_path, *map(at, servers)))
