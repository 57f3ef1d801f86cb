"""A run of served arms that stops when its budget is spent, and goes on with a higher one."""

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


def test_it_stops_when_that_is_spent_goes_on_with_more_and_is_decided_again_without_servers(workspace):
    with scripted(otherwise=answer) as one, scripted(otherwise=answer) as two:
        poor = run(workspace, GATE.format(one.address, two.address, 3500))
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

        rich = run(workspace, GATE.format(one.address, two.address, 100_000))
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

    decided = qualgate("gate", "gate.yaml", "--json", cwd=workspace)  # no server runs any more
    assert decided.returncode == Exit.APPROVE, decided.stderr
    body, before = json.loads(decided.stdout), json.loads(rich.stdout)
    assert body["verdicts"][0]["comparisons"] == before["verdicts"][0]["comparisons"]


def test_a_program_that_is_not_there_is_told_before_any_server_is_asked(workspace):
    with scripted(otherwise=answer) as one:
        arms = GATE.format(one.address, "http://127.0.0.1:2/v1", 9)
        done = run(workspace, arms.replace("endpoint: 'http://127.0.0.1:2/v1'", "serve: 'vlllm serve m --port {port}'"))
        assert not one.asked
    assert done.returncode == Exit.USAGE
    assert "v: `serve` begins with 'vlllm', and there is no such program here" in " ".join(done.stderr.split())
