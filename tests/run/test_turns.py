"""A gate on cases of several turns, from the file to the report."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.command_line import qualgate
from tests.run.commands import rows
from tests.served.server.serving import serving
from tests.tiny_models import END, save_tiny_model

TEMPLATE = """{% for m in messages %}<{{ m.role }}>{{ m.content }}{% for call in m.tool_calls or [] %}{{
 {"name": call.function.name, "arguments": call.function.arguments} | tojson }}{% endfor %}{% endfor %}<assistant>"""
GATE_FILE = """\
version: 1
baseline: {model: ./model, dtype: float32}
variants: {same: {model: ./model, dtype: float32}}
evalsets: [./shop.yaml]
gate:
  rules:
    - {metric: turns.correct, max_drop: 0.10}
    - {metric: turns.state, max_drop: 0.10}
    - {metric: tool_call.correct, per: "tag:turn", max_drop: 0.15, tier: advisory}
store: sqlite:///qualgate.db
workers: {backend: local, count: 1}
"""
TOOLS = [{"name": "order", "parameters": {"type": "object", "properties": {"id": {"type": "integer"}}}}]


def workspace(folder: Path, trajectories: int = 40) -> Path:
    """A model that writes letters and calls nothing, and of whose trajectories one in ten expects a call first."""
    save_tiny_model(folder / "model", seed=1, dtype="float32", eos_token_ids=[END, *range(0, 256, 2)])
    (folder / "model" / "chat_template.jinja").write_text(TEMPLATE)
    rows = []
    for number in range(trajectories):
        spoken = [{"user": f"{word} {number}", "expected_calls": [], "says": "Yes."} for word in ("good", "bye")]
        called = {"user": f"order {number}", "expected_calls": [{"name": "order", "arguments": {"id": number}}]}
        turns = spoken if number % 10 else [called | {"results": ["sent"]}, *spoken]
        rows.append(
            {"id": f"t{number}", "max_new_tokens": 40, "tools": TOOLS, "turns": turns, "state": {"classes": ["Shop"]}}
        )
    (folder / "shop.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    header = "name: shop\nversion: 1\nmetrics: [tool_call.correct, turns.correct, turns.state]\nsimulation: tools.py\n"
    (folder / "shop.yaml").write_text(header)
    (folder / "tools.py").write_text("class Shop:\n    def order(self, id):\n        return 'sent'\n")
    (folder / "gate.yaml").write_text(GATE_FILE)
    return folder


@pytest.fixture(scope="module")
def judged(tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    folder = workspace(tmp_path_factory.mktemp("turns"))
    return folder, qualgate("run", "gate.yaml", cwd=folder)


def test_trajectories_are_asked_turn_by_turn_and_judged_whole(judged):
    folder, done = judged
    assert done.returncode == 0, done.stdout + done.stderr
    body = json.loads(qualgate("report", "gate.yaml", "--json", cwd=folder).stdout)
    whole, by_state, *by_turn = body["verdicts"][0]["comparisons"]
    assert (whole["metric"], whole["n"], whole["clusters"], whole["status"]) == ("turns.correct", 40, None, "proven")
    assert whole["baseline"] == 36 / 40
    assert (by_state["metric"], by_state["n"], by_state["baseline"]) == ("turns.state", 40, 36 / 40)
    assert [(one["slice"], one["n"]) for one in by_turn] == [("tag:turn:1", 40), ("tag:turn:2", 40), ("tag:turn:3", 4)]
    (shop,) = body["trajectories"]["same"]
    assert (shop["count"], shop["baseline"], shop["variant"], shop["lost"]) == (40, 36, 36, 0)
    assert [(one["turn"], one["asked"], one["variant_diverged"]) for one in shop["turns"]] == [
        (1, 40, 4), (2, 40, 0), (3, 4, 0),
    ]  # fmt: skip


def test_served_arms_are_asked_the_same_turns(judged, tmp_path):
    """By their messages, which a server puts through its own template: the answers are those given in process."""
    folder, _ = judged
    model, cache = folder / "model", tmp_path / "cache"
    shutil.copytree(folder, tmp_path / "served", ignore=shutil.ignore_patterns("qualgate*", "gate.yaml"))
    with serving(model, "shop", cache) as (one, _), serving(model, "shop", cache) as (other, _):
        text = GATE_FILE.replace("{model: ./model, dtype: float32}}", f"{{endpoint: '{other}', model: shop}}}}")
        text = text.replace("{model: ./model, dtype: float32}", f"{{endpoint: '{one}', model: shop}}")
        text = text.replace("{backend: local, count: 1}", "{count: 1}")
        (tmp_path / "served" / "gate.yaml").write_text(text)
        done = qualgate("run", "gate.yaml", cwd=tmp_path / "served")
    assert done.returncode == 0, done.stdout + done.stderr
    said = "SELECT arm, case_id, text FROM units WHERE arm IN ('baseline', 'same') ORDER BY 1, 2"
    assert len(rows(folder, said)) == 2 * 84
    assert rows(tmp_path / "served", said) == rows(folder, said)
