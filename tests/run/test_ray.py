"""A run on a Ray cluster that it starts itself, beside the same run on this machine alone."""

from __future__ import annotations

import json

import pytest

from qualgate.errors import Exit
from tests.command_line import in_a_process, qualgate
from tests.run.commands import changed, rows

OF_A_RUN = ("run", "peak")  # its name, and what its processes took: no two runs have the same


def without(value, keys: tuple[str, ...]):
    if isinstance(value, dict):
        return {key: without(held, keys) for key, held in value.items() if key not in keys}
    return [without(held, keys) for held in value] if isinstance(value, list) else value


@pytest.mark.proof
def test_a_run_on_ray_reports_what_the_same_run_does_without_it(finished, workspace):
    here, said = finished
    changed(workspace, ("backend: local", "backend: ray"), ("count: 1", "count: 2"))
    done = in_a_process("run", "gate.yaml", cwd=workspace)
    assert done.returncode == said.returncode == Exit.BLOCK, done.stderr
    bodies = [json.loads(qualgate("report", "--json", cwd=folder).stdout) for folder in (here, workspace)]
    ours, theirs = (json.dumps(without(body, OF_A_RUN), sort_keys=True) for body in bodies)
    assert ours == theirs
    told = "select arm, evalset, case_id, text, token_ids, logprobs, kl from units order by 1, 2, 3"
    assert rows(here, told) == rows(workspace, told)
