"""`stop: early`, end to end, through the command line."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import in_a_process, qualgate
from tests.run.commands import grow, rows


@pytest.fixture(scope="module")
def early(made, tmp_path_factory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A workspace with each case twice, run with `stop: early`."""
    folder = tmp_path_factory.mktemp("early")
    shutil.copytree(made.parent, folder, dirs_exist_ok=True)
    grow(folder, copies=2)
    file = folder / "gate.yaml"
    file.write_text(file.read_text().replace("gate:\n", "gate:\n  stop: early\n"))
    return folder, qualgate("run", "gate.yaml", "--json", cwd=folder)


def test_a_run_that_may_stop_early_generates_no_more_than_settles_each_variant(early):
    folder, done = early
    assert done.returncode == Exit.BLOCK, done.stderr
    body = json.loads(done.stdout)
    seen = {v["variant"]: (v["word"], v["seen"]["questions"], v["seen"]["of"]) for v in body["verdicts"]}
    assert seen == {"same": ("approve", 76, 120), "int2": ("block", 44, 120)}
    assert body["status"] == "complete"
    answered = dict(rows(folder, "select arm, count(*) from units where status = 'done' group by arm"))
    assert answered["int2"] < 120
    assert rows(folder, "select count(*) from units where status not in ('done', 'settled')") == [(0,)]
    assert rows(folder, "select variant, look, seen, word from stoppings order by variant") == [
        ("int2", 2, 44, "block"),
        ("same", 4, 76, "approve"),
    ]
    assert not list(folder.glob("qualgate.db.artifacts/*/*.safetensors"))


def test_an_early_verdict_is_the_same_from_the_store_and_is_its_own_policy_s_alone(early):
    folder, done = early
    again = in_a_process("gate", "gate.yaml", "--json", cwd=folder, PYTHONHASHSEED="5", TZ="Asia/Tokyo")
    assert (again.returncode, again.stdout) == (Exit.BLOCK, done.stdout)
    text = (folder / "gate.yaml").read_text()
    for change in (("max_drop: 0.10", "max_drop: 0.15"), ("stop: early", "stop: end")):
        (folder / "other.yaml").write_text(text.replace(*change))
        other = qualgate("gate", "other.yaml", "--json", cwd=folder)
        assert other.returncode == Exit.UNDECIDED
        assert "cannot judge cases chosen by looking" in other.stdout
    shown = qualgate("gate", "gate.yaml", cwd=folder)
    same, worse = shown.stdout.splitlines()[-2:]
    assert ("76 of 120 cases seen" in same, "44 of 120 cases seen" in worse) == (True, True)


def test_a_plan_says_what_stopping_early_would_take(early):
    folder, _ = early
    shown = qualgate("plan", "gate.yaml", cwd=folder)
    assert "stop: early looks at each variant 7 times at most" in shown.stdout
    assert json.loads(qualgate("plan", "gate.yaml", "--json", cwd=folder).stdout)["stop"]["of"] == 120


@pytest.mark.parametrize("option", ["--blame", "--four-arm"])
def test_what_needs_every_case_refuses_to_stop_early(workspace, option):
    file = workspace / "gate.yaml"
    arms = "four_arm: {quantization: int2, speculation: same, both: third}\n"
    more = "  third: {model: ./model, dtype: float32}\nevalsets"
    text = file.read_text().replace("gate:\n", "gate:\n  stop: early\n").replace("evalsets", more) + arms
    file.write_text(text)
    done = qualgate("run", "gate.yaml", option, cwd=workspace)
    assert (done.returncode, "stop: early" in done.stderr) == (Exit.USAGE, True), done.stderr
