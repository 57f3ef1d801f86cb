"""A node hands on the JSON lines of its child, and no more than a line may say."""

from __future__ import annotations

import json

import pytest

from qualgate.errors.log_lines import log_line
from qualgate.pipeline.child_log import ChildLog


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
    assert log.last_words() == "no room"


def test_the_last_words_of_a_child_begin_at_its_error_however_much_it_said_before_and_in_it(child):
    log, _ = child
    wrote(log, "planning: reading 1 evalset\nqualgate: gate.yaml is wrong:\n  line 3\n")
    assert log.last_words() == "gate.yaml is wrong: line 3"
    wrote(log, "qualgate: the store is away\nqualgate: " + "word " * 200)
    assert log.last_words() == " ".join(["word"] * 120)


def test_the_last_words_of_a_child_that_told_no_error_are_the_end_of_what_it_said(child):
    log, _ = child
    wrote(log, "planning\n" * 200 + "Traceback: no space left\n")
    assert log.last_words().endswith("planning Traceback: no space left")


def test_where_lines_are_for_people_a_child_s_output_is_handed_on_to_nobody(child, monkeypatch):
    log, told = child
    monkeypatch.setenv("QUALGATE_LOG", "text")
    wrote(log, log_line("begins") + "\n")
    log.relay()
    assert told == []
