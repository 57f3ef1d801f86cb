"""A run that is watched: its log as JSON lines, and its trace."""

from __future__ import annotations

import contextlib
import json

import pytest

from qualgate.errors import Exit
from qualgate.pipeline import tracing
from tests.command_line import qualgate
from tests.gated_model import make_workspace
from tests.run.commands import rows

SPANS = None
with contextlib.suppress(ImportError):
    from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

    SPANS = InMemorySpanExporter()


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    folder = make_workspace(tmp_path_factory.mktemp("made"), cases=6, tokens=4).parent
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(tracing, "_exporter", lambda: SPANS)
        asked = {"OTEL_TRACES_EXPORTER": "otlp"} if SPANS is not None else {}
        return folder, qualgate("run", "gate.yaml", "--json", cwd=folder, QUALGATE_LOG="json", **asked)


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


def test_its_trace_has_every_job_and_answer_and_is_named_in_its_log(watched):
    if SPANS is None:
        pytest.skip("no OpenTelemetry: install the extra otel")
    folder, done = watched
    found = SPANS.get_finished_spans()
    jobs, units = rows(folder, "SELECT DISTINCT arm, job FROM units"), rows(folder, "SELECT count(*) FROM units")
    assert [sum(one.name == name for one in found) for name in ("run", "job", "answer")] == [1, len(jobs), units[0][0]]
    [said] = [line for line in map(json.loads, done.stderr.splitlines()) if line.get("event") == "begun"]
    assert {format(one.context.trace_id, "032x") for one in found} == {said["trace"]}
    answers = [one for one in found if one.name == "answer"]
    assert all(one.start_time < one.events[0].timestamp <= one.end_time for one in answers)


def test_an_error_is_a_line_with_its_exit_code(tmp_path):
    done = qualgate("run", "none.yaml", cwd=tmp_path, QUALGATE_LOG="json")
    said = json.loads(done.stderr)
    assert (said["level"], said["exit"], done.returncode) == ("error", Exit.USAGE, Exit.USAGE)
    assert "none.yaml" in said["message"]


def test_another_form_of_log_is_refused(tmp_path):
    assert qualgate("--log", "xml", "runs", cwd=tmp_path, QUALGATE_LOG="text").returncode == Exit.USAGE
