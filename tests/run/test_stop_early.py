"""`stop: early`, end to end, through the command line."""

from __future__ import annotations

import json
from functools import partial

import pytest

from qualgate.errors import Exit
from qualgate.gate.planning.planner import plan_policy
from qualgate.pipeline import foretell
from tests.command_line import qualgate
from tests.run.commands import changed, grow, rows

EARLY = ("gate:\n", "gate:\n  stop: early\n")


def test_a_run_that_may_stop_early_generates_no_more_than_settles_each_variant(workspace, monkeypatch):
    grow(workspace, copies=2)
    changed(workspace, EARLY)
    monkeypatch.setattr(foretell, "plan_policy", partial(plan_policy, draws=500))  # no rate is looked at
    plan = json.loads(qualgate("plan", "gate.yaml", "--json", cwd=workspace).stdout)["stop"]
    assert (plan["of"], plan["looks"]) == (120, 7)

    done = qualgate("run", "gate.yaml", "--json", cwd=workspace)
    assert done.returncode == Exit.BLOCK, done.stderr
    body = json.loads(done.stdout)
    seen = {v["variant"]: (v["word"], v["seen"]["questions"], v["seen"]["of"]) for v in body["verdicts"]}
    assert seen == {"same": ("approve", 76, 120), "int2": ("block", 44, 120)}
    assert body["status"] == "complete"
    answered = dict(rows(workspace, "select arm, count(*) from units where status = 'done' group by arm"))
    assert answered["int2"] < 120
    assert rows(workspace, "select count(*) from units where status not in ('done', 'settled')") == [(0,)]
    stops = (
        "select part, body_json ->> 'look', body_json ->> 'seen', body_json ->> 'word' from sealed "
        "where kind = 'stopping' order by part"
    )
    assert rows(workspace, stops) == [
        ("int2", 2, 44, "block"),
        ("same", 4, 76, "approve"),
    ]
    assert not list(workspace.glob("qualgate.db.artifacts/*/*.safetensors"))

    again = qualgate("gate", "gate.yaml", "--json", cwd=workspace)
    assert (again.returncode, again.stdout) == (Exit.BLOCK, done.stdout)
    changed(workspace, ("max_drop: 0.10", "max_drop: 0.15"), file="other.yaml")
    other = qualgate("gate", "other.yaml", "--json", cwd=workspace)
    assert (other.returncode, "cannot judge cases chosen by looking" in other.stdout) == (Exit.UNDECIDED, True)


@pytest.mark.parametrize("option", ["--blame", "--four-arm"])
def test_what_needs_every_case_refuses_to_stop_early(workspace, option):
    arms = "four_arm: {quantization: int2, speculation: same, both: third}\n"
    changed(workspace, EARLY, ("evalsets", f"  third: {{model: ./model, dtype: float32}}\n{arms}evalsets"))
    done = qualgate("run", "gate.yaml", option, cwd=workspace)
    assert (done.returncode, "stop: early" in done.stderr) == (Exit.USAGE, True), done.stderr


def test_what_the_fixed_test_judged_is_not_judged_again_by_stopping_early_with_another_seed_either(judged):
    changed(judged, EARLY, ("gate:\n", "generation: {seed: 7}\ngate:\n"))
    done = qualgate("run", "gate.yaml", "--json", cwd=judged)
    assert done.returncode == Exit.UNDECIDED, done.stderr
    assert "this run will decide nothing (12)" in " ".join(done.stderr.split())
    verdicts = json.loads(done.stdout)["verdicts"]
    assert all("two tests of one list err more often than alpha" in verdict["reasons"][0] for verdict in verdicts)
