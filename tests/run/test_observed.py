"""A run that is watched: its log as JSON lines."""

from __future__ import annotations

import json

import pytest

from qualgate.errors import Exit
from tests.command_line import qualgate
from tests.gated_model import make_workspace
from tests.run.commands import rows


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    folder = make_workspace(tmp_path_factory.mktemp("made"), cases=6, tokens=4).parent
    return folder, qualgate("run", "gate.yaml", "--json", cwd=folder, QUALGATE_LOG="json")


def test_every_line_of_stderr_is_an_object_and_each_job_has_its_event(watched):
    folder, done = watched
    said = [json.loads(line) for line in done.stderr.splitlines()]
    json.loads(done.stdout)
    [(run,)] = rows(folder, "SELECT run_id FROM runs")
    events = [one for one in said if one.get("event") in ("begun", "answered", "failed", "ended")]
    assert {one["run"] for one in events} == {run}
    assert [events[0]["event"], events[-1]["event"], events[-1]["exit"]] == ["begun", "ended", done.returncode]
    answered = [(one["arm"], one["job"]) for one in events[1:-1]]
    assert sorted(answered) == sorted(rows(folder, "SELECT DISTINCT arm, job FROM units"))


def test_an_error_is_a_line_with_its_exit_code(tmp_path):
    done = qualgate("run", "none.yaml", cwd=tmp_path, QUALGATE_LOG="json")
    said = json.loads(done.stderr)
    assert (said["level"], said["exit"], done.returncode) == ("error", Exit.USAGE, Exit.USAGE)
    assert "none.yaml" in said["message"]


def test_another_form_of_log_is_refused(tmp_path):
    assert qualgate("--log", "xml", "runs", cwd=tmp_path, QUALGATE_LOG="text").returncode == Exit.USAGE
