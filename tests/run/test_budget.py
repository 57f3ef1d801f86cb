"""A run of served arms that stops when its budget is spent, goes on with a higher one, and is told again alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.gated_model import write_evalset
from tests.run.commands import rows
from tests.served.scripted import Reply, as_json, scripted

CASES = 70
GATE = """\
version: 1
baseline: {{endpoint: '{0}', model: m, stream: false}}
variants: {{v: {{endpoint: '{1}', model: m, stream: false, price: {{answer: 3}}}}}}
evalsets: [./echo.yaml]
gate: {{noise_floor: false, rules: [{{metric: exact_match, max_drop: 0.15}}]}}
budget: {{max_tokens_total: {2}, currency: EUR, price: {{prompt: 1, answer: 2}}}}
store: sqlite:///qualgate.db
workers: {{count: 1}}
"""
SAID = (
    "SELECT evalset, case_id, arm, text, finish_reason, prompt_tokens, answer_tokens, ttft, e2e, metric, value, verdict"
    " FROM units JOIN scores USING (unit_id) WHERE run_id = '{}' ORDER BY 1, 2, 3, metric"
)


def answer(body: dict) -> Reply:
    """As many tokens as the prompt's number has digits; one case is wrong. A text it has not said before."""
    number = body["prompt"].split()[-1]
    said = "wrong" if number == "13" else f"said {number}"
    usage = {"prompt_tokens": 3, "completion_tokens": 1 + len(number)}
    return as_json({"choices": [{"index": 0, "text": said, "finish_reason": "stop"}], "usage": usage})


@pytest.fixture
def workspace(tmp_path) -> Path:
    cases = [
        {"id": f"e-{n:02d}", "task": "echo", "prompt": f"say {n}", "max_new_tokens": 8, "answer": f"said {n}"}
        for n in range(CASES)
    ]
    write_evalset(tmp_path, cases)
    return tmp_path


def run(folder: Path, gate: str, *options: str):
    (folder / "gate.yaml").write_text(gate)
    return qualgate("run", "gate.yaml", "--json", *options, cwd=folder)


def spent(done) -> dict[str, int]:
    arms = {arm["name"]: arm["footprint"] for arm in json.loads(done.stdout)["arms"]}
    return {name: of["spent"]["prompt"] + of["spent"]["answer"] for name, of in arms.items() if of and of["spent"]}


def test_it_stops_when_that_is_spent_goes_on_with_more_and_is_told_again_without_servers(workspace):
    with scripted(otherwise=answer) as one, scripted(otherwise=answer) as two:
        poor = run(workspace, GATE.format(one.address, two.address, 3500), "--record", "said")
        [verdict] = json.loads(poor.stdout)["verdicts"]
        assert (poor.returncode, verdict["word"]) == (Exit.INFRASTRUCTURE, "invalid"), poor.stderr
        told = " ".join(poor.stderr.split())
        assert "`max_tokens_total: 3500` tokens, and the next" in told
        assert "Raise it in the gate file and run the same command again" in told
        assert 0 < sum(spent(poor).values()) <= 3500
        asked = len(one.asked) + len(two.asked)
        assert asked < 2 * CASES
        again = qualgate("gate", "gate.yaml", cwd=workspace)
        assert again.returncode == Exit.INFRASTRUCTURE  # a part of an arm is no evidence

        rich = run(workspace, GATE.format(one.address, two.address, 100_000), "--record", "said")
        assert rich.returncode == Exit.APPROVE, rich.stderr
        assert "resumed run" in rich.stderr
        assert sum(spent(rich).values()) > sum(spent(poor).values())
        assert len(one.asked) >= CASES
        plan = qualgate("plan", "gate.yaml", cwd=workspace)
    assert not (workspace / "qualgate.db.artifacts" / "spent.jsonl").exists()
    shown = " ".join(plan.stdout.split())
    assert "Servers: at most" in shown
    assert "Expected of servers: " in shown
    first, stored = json.loads(rich.stdout)["run"], rows(workspace, "SELECT run_id FROM runs")
    assert stored == [(first,)]

    replayed = run(
        workspace, GATE.format(one.address, two.address, 1), "--replay", "said"
    )  # what costs nothing has no bound
    assert replayed.returncode == Exit.APPROVE, replayed.stderr
    body, before = json.loads(replayed.stdout), json.loads(rich.stdout)
    assert body["run"] != first
    assert body["arms"][0]["identity"]["engine"].startswith("served, replayed by qualgate")
    assert body["arms"][0]["weights"].endswith(", replayed")
    assert body["verdicts"][0]["comparisons"] == before["verdicts"][0]["comparisons"]
    answers = [rows(workspace, SAID.format(which)) for which in (first, body["run"])]
    assert [row[:7] + row[9:] for row in answers[0]] == [row[:7] + row[9:] for row in answers[1]]
    assert len(answers[0]) == 2 * CASES
    assert max(abs(then[8] - now[8]) for then, now in zip(*answers, strict=True)) < 0.2  # the times are told again

    (workspace / "echo.jsonl").write_text((workspace / "echo.jsonl").read_text().replace('"say 69"', '"say  69"'))
    other = run(workspace, GATE.format(one.address, two.address, 1), "--replay", "said")
    assert other.returncode == Exit.INFRASTRUCTURE
    assert 'of echo/e-69 is not in the recording: `prompt` was "say 69", and is "say 69"' in " ".join(
        other.stderr.split()
    )
    file = workspace / "said" / "v" / "plan.jsonl"
    file.write_text(file.read_text().replace("./m", "./n"))
    assert run(workspace, GATE.format(one.address, two.address, 1), "--replay", "said").returncode == Exit.INTEGRITY


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--record", "a", "--replay", "b"), "take one of the two out"),
        (("--replay", "none"), "there is no recording"),
        (("--record", "."), "it holds other files"),
    ],
)
def test_options_that_cannot_be_are_refused_before_anything_is_asked(options, said, workspace):
    done = run(workspace, GATE.format("http://127.0.0.1:1/v1", "http://127.0.0.1:2/v1", 9), *options)
    assert done.returncode == Exit.USAGE
    assert said in " ".join(done.stderr.split())


def test_a_program_that_is_not_there_is_told_before_any_server_is_asked(workspace):
    with scripted(otherwise=answer) as one:
        arms = GATE.format(one.address, "http://127.0.0.1:2/v1", 9)
        done = run(workspace, arms.replace("endpoint: 'http://127.0.0.1:2/v1'", "serve: 'vlllm serve m --port {port}'"))
        assert not one.asked
    assert done.returncode == Exit.USAGE
    assert "v: `serve` begins with 'vlllm', and there is no such program here" in " ".join(done.stderr.split())


def test_a_run_without_servers_has_nothing_to_record(workspace):
    gate = "version: 1\nbaseline: {model: reference}\nvariants: {q: {quantize: int8}}\nevalsets: [./echo.yaml]\n"
    done = run(workspace, gate + "gate: {rules: [{metric: exact_match, max_drop: 0.15}]}\n", "--record", "said")
    assert done.returncode == Exit.USAGE
    assert "--record is about what servers say, and gate.yaml asks none" in " ".join(done.stderr.split())
