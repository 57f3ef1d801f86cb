"""JSON lines hold what they are about and no secret; a node hands on its child's, and no more than a line may say."""

from __future__ import annotations

import json

import pytest

from qualgate.pipeline.child_log import ChildLog
from qualgate.pipeline.log_lines import log_line, read_line


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


@pytest.fixture
def child(tmp_path, monkeypatch):
    monkeypatch.setenv("QUALGATE_LOG", "json")
    told: list[tuple[str, dict[str, object]]] = []
    (tmp_path / "log").touch()
    log = ChildLog(tmp_path / "log", lambda line, **about: told.append((line, about)))
    return log, told


def wrote(log: ChildLog, text: str) -> None:
    with log.path.open("a") as file:
        file.write(text)


def test_lines_of_a_child_are_handed_on_once_and_whole(child):
    log, told = child
    line = log_line("begins", event="begun", run="r1")
    wrote(log, f"{line}\n{line[:20]}")
    log.relay()
    assert [said for said, _ in told] == ["begins"]
    assert told[0][1]["run"] == "r1"
    wrote(log, f"{line[20:]}\n")
    log.relay()
    log.relay()
    assert len(told) == 2


def test_a_child_s_line_says_only_what_a_line_may_say(child):
    log, told = child
    forged = {"time": 5, "level": "loud", "message": "m", "node": "other", "run": ["r"], "job": 3, "x": {}}
    wrote(log, f"{json.dumps(forged)}\nsome text\n")
    log.relay()
    assert told == [("m", {"level": "info", "job": 3})]


def test_a_child_that_writes_no_end_of_line_is_read_past(child):
    log, told = child
    wrote(log, "x" * (2**20 + 5) + "\n" + log_line("after") + "\n")
    log.relay()
    log.relay()
    assert [said for said, _ in told] == ["after"]


def test_the_last_words_of_a_child_that_speaks_json_are_its_message(child):
    log, _ = child
    wrote(log, log_line("qualgate: no room", level="error") + "\n")
    assert log.last_words() == "qualgate: no room"


def test_where_lines_are_for_people_a_child_s_output_is_handed_on_to_nobody(child, monkeypatch):
    log, told = child
    monkeypatch.setenv("QUALGATE_LOG", "text")
    wrote(log, log_line("begins") + "\n")
    log.relay()
    assert told == []
