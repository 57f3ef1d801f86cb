"""JSON lines hold what they are about, on one line, and no secret."""

from __future__ import annotations

import pytest

from qualgate.errors.log_lines import log_line, read_line


def test_a_line_is_one_object_on_one_line_of_ascii():
    line = log_line("said\nto\x1b[2J you: ü\ud800", event="answered", run="r1", arm="", job=0, exit=None)
    assert line.isascii()
    assert "\n" not in line
    said = read_line(line)
    assert said is not None
    assert said.pop("time").endswith("Z")
    assert said == {
        "level": "info", "message": "said\nto\x1b[2J you: ü\ud800", "event": "answered", "run": "r1", "job": 0,
    }  # fmt: skip


@pytest.mark.parametrize("name", ["PGPASSWORD", "OPENAI_API_KEY", "OTEL_EXPORTER_OTLP_HEADERS", "QUALGATE_SLACK_URL"])
def test_what_a_secret_of_the_environment_holds_is_in_no_line(monkeypatch, name):
    secret = 'c0rrect "horse"\\ü'
    monkeypatch.setenv(name, secret)
    said = read_line(log_line(f"the server says {secret}!", arm=secret))
    assert said is not None
    assert (said["message"], said["arm"]) == ("the server says …!", "…")


@pytest.mark.parametrize(
    "line", ["", "text", "{", '{"time": 1', '["time"]', '{"time": 1}', '{"time": 1, "message": 2}']
)
def test_other_text_is_no_line(line):
    assert read_line(line) is None
