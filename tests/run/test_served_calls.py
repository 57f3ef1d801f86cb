"""What a server's own parser made of its answers is stored with them, and judged again from the store."""

from __future__ import annotations

import json
import re

import pytest

from qualgate.errors import Exit
from qualgate.records.identity import content_hash
from tests.command_line import qualgate
from tests.run.commands import rows
from tests.served.scripted import Reply, as_json, scripted

TOOL = {"name": "look_up", "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}}}
CASES = [
    {"id": f"c{n}", "messages": [{"role": "user", "content": f"Look up {n}."}], "max_new_tokens": 16, "tools": [TOOL],
     "expected_calls": [{"name": "look_up", "arguments": {"n": n}}]}
    for n in range(60)
]  # fmt: skip


def calls(body: dict) -> Reply:
    """The baseline is right; the variant's parser gives text instead of a call for two questions of three."""
    (n,) = map(int, re.findall(r"\d+", body["messages"][-1]["content"]))
    function = {"name": "look_up", "arguments": json.dumps({"n": n})}
    made = [{"index": 0, "id": f"call-{n}", "type": "function", "function": function}]
    lost = body.get("new") and n % 3
    message = {"role": "assistant", "content": json.dumps(function) if lost else None}
    message |= {} if lost else {"tool_calls": made}
    return as_json({
        "id": "chatcmpl-" + content_hash([body.get("new"), n])[:24],
        "choices": [{"index": 0, "message": message, "finish_reason": "stop" if lost else "tool_calls"}],
        "usage": {"prompt_tokens": 9, "completion_tokens": 12},
    })  # fmt: skip


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "calls.yaml").write_text('name: calls\nversion: "1"\nmetrics: [tool_call.served]\n')
    (tmp_path / "calls.jsonl").write_text("".join(json.dumps(case) + "\n" for case in CASES))
    return tmp_path


def test_calls_of_servers_are_judged_stored_and_judged_again_without_them(folder):
    with scripted(otherwise=calls) as server:
        arm = f"endpoint: '{server.address}', model: m, stream: false, "
        (folder / "gate.yaml").write_text(
            f"version: 1\nbaseline: {{{arm}}}\nvariants: {{new: {{{arm}extra_body: {{new: 1}}}}}}\n"
            "evalsets: [./calls.yaml]\nworkers: {count: 1}\nstore: sqlite:///qualgate.db\n"
            "gate: {noise_floor: false, rules: [{metric: tool_call.served, max_drop: 0.1}]}\n"
        )
        done = qualgate("run", "gate.yaml", "--json", cwd=folder)
        assert done.returncode == Exit.BLOCK, done.stderr
        asked = len(server.asked)
    compared = json.loads(done.stdout)["verdicts"][0]["comparisons"][0]
    assert (compared["baseline"], compared["variant"]) == (1.0, pytest.approx(20 / 60))
    stored = rows(folder, "SELECT arm, case_id, calls, reply FROM units ORDER BY 1, 2")
    given = {(arm, case): json.loads(made) for arm, case, made, _ in stored}
    assert given["baseline", "c4"] == [["look_up", '{"n": 4}']]
    assert given["new", "c4"] == []
    assert len({reply for *_, reply in stored if reply}) == len(stored)
    corrected = [{**case, "expected_calls": []} if case["id"] == "c3" else case for case in CASES]
    (folder / "calls.jsonl").write_text("".join(json.dumps(case) + "\n" for case in corrected))
    again = qualgate("rescore", "gate.yaml", "--json", cwd=folder)
    assert again.returncode == Exit.BLOCK, again.stderr
    scored = "SELECT arm, case_id, verdict FROM scores JOIN units USING (unit_id) WHERE scoring = {} AND scorer = '{}'"
    before, after = (dict(by_case(folder, scored.format(at, "tool_call.served/5 its server"))) for at in (0, 1))
    assert {key for key in before if before[key] != after[key]} == {("baseline", "c3"), ("new", "c3")}
    assert asked == 2 * len(CASES), "nothing is asked again"


def by_case(folder, query: str) -> list[tuple[tuple[str, str], bool]]:
    return [((arm, case), bool(verdict)) for arm, case, verdict in rows(folder, query)]
