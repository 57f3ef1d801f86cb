"""JSON lines hold what they are about, on one line, and no secret."""

from __future__ import annotations

import json

import pytest

from qualgate.cli.stderr import tell_event
from qualgate.errors.log_lines import all_are_about, log_line
from qualgate.pipeline.events import Event


def test_a_line_is_one_object_on_one_line_of_ascii():
    line = log_line("said\nto\x1b[2J you: ü\ud800", event="answered", run="r1", arm="", job=0, exit=None)
    assert line.isascii()
    assert "\n" not in line
    said = json.loads(line)
    assert said.pop("time").endswith("Z")
    assert said == {
        "level": "info", "message": "said\nto\x1b[2J you: ü\ud800", "event": "answered", "run": "r1", "job": 0,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["PGPASSWORD", "OPENAI_API_KEY", "OTEL_EXPORTER_OTLP_HEADERS", "QUALGATE_SLACK_URL"])
def test_what_a_secret_of_the_environment_holds_is_in_no_line(monkeypatch, name):
    secret = 'c0rrect "horse"\\ü'
    monkeypatch.setenv(name, secret)
    said = json.loads(log_line(f"the server says {secret}!", arm=secret))
    assert (said["message"], said["arm"]) == ("the server says …!", "…")


def test_a_line_of_who_knows_of_no_run_is_about_the_one_under_way():
    begun = Event(what="begun", run="r1", message="run r1 begins")
    try:
        tell_event(begun)
        assert json.loads(log_line("24 of 72 answers", event="progress")) | {"time": ""} == {
            "time": "", "level": "info", "message": "24 of 72 answers", "event": "progress", "run": "r1",
        }  # fmt: skip
        assert json.loads(log_line("another's", run="r2"))["run"] == "r2"
    finally:
        all_are_about()
    assert "run" not in json.loads(log_line("search: begins"))
