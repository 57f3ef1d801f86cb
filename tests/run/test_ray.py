"""A run on a Ray cluster that it starts itself, beside the same run on this machine alone."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from qualgate.errors import Exit
from tests.command_line import in_a_process
from tests.run.commands import rows

pytestmark = pytest.mark.proof
OF_A_RUN = ("run", "peak")  # its name, and what its processes took: no two runs have the same


def on_ray(folder: Path) -> Path:
    file = folder / "gate.yaml"
    file.write_text(file.read_text().replace("backend: local", "backend: ray"))
    return folder


def without(value, keys: tuple[str, ...]):
    if isinstance(value, dict):
        return {key: without(held, keys) for key, held in value.items() if key not in keys}
    return [without(held, keys) for held in value] if isinstance(value, list) else value


def test_a_run_on_ray_reports_what_the_same_run_does_without_it(judged, tmp_path):
    here, said = judged
    shutil.copytree(here, tmp_path / "ray", ignore=shutil.ignore_patterns("qualgate.db*", "qualgate-reports"))
    there = on_ray(tmp_path / "ray")
    done = in_a_process("run", "gate.yaml", cwd=there)
    assert done.returncode == said.returncode == Exit.BLOCK, done.stderr
    bodies = [json.loads(in_a_process("report", "--json", cwd=folder).stdout) for folder in (here, there)]
    ours, theirs = (json.dumps(without(body, OF_A_RUN), sort_keys=True) for body in bodies)
    assert ours == theirs
    told = "select arm, evalset, case_id, text, token_ids, logprobs, kl from units order by 1, 2, 3"
    assert rows(here, told) == rows(there, told)


def test_ctrl_c_stops_a_run_on_ray_and_running_again_resumes(workspace):
    on_ray(workspace)
    process = subprocess.Popen(
        [sys.executable, "-m", "qualgate", "run", "gate.yaml"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=workspace, start_new_session=True,
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if re.match(r"\s*[1-9][\d,]* of [\d,]+ answers ", line):
            os.killpg(process.pid, signal.SIGINT)
            break
    said = process.stderr.read()
    assert process.wait() == Exit.INTERRUPTED, said
    assert "resume" in said
    done = in_a_process("run", "gate.yaml", cwd=workspace)
    assert done.returncode == Exit.BLOCK, done.stderr
    assert rows(workspace, "select count(distinct run_id) from units where status = 'done'") == [(1,)]
