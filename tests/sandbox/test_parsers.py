"""A server's own tool parsers, run in its environment behind the wall: one child for many texts, whatever they hold."""

from __future__ import annotations

import json

import pytest

from qualgate.sandbox import parsers
from qualgate.sandbox.parsers import NoParsers, Parsers, Unread
from tests.served_environments import stand_in

CALL = '<tool_call>{"name": "f", "arguments": {"a": 1.5}}'
CALLED = (("f", '{"a": 1.5}'),)


@pytest.fixture(scope="module")
def server():
    running = Parsers("vllm", stand_in())
    yield running
    running.close()


def test_it_reads_as_the_environments_parser_does_and_names_its_version(server):
    assert server.version == "9.8.7"
    assert server.read("hermes", CALL, []) == CALLED
    assert server.read("hermes", "It is sunny. \ud800\0", []) == ()


def test_one_child_reads_many_texts(server):
    server.read("hermes", CALL, [])
    child = server._child
    assert {server.read("hermes", f"{number}{CALL}", []) for number in range(200)} == {CALLED}
    assert server._child is child


@pytest.mark.parametrize(
    ("text", "why"),
    [("RAISE", "ValueError: no such text"), ("DIE", "ended with code 3"), ("HANG", "no end within 1 s")],
)
def test_a_text_at_which_the_parser_fails_is_unread_and_the_next_is_read(server, monkeypatch, text, why):
    monkeypatch.setattr(parsers, "TEXT_SECONDS", 1)
    monkeypatch.setattr(parsers, "LIMITS", parsers.replace(parsers.LIMITS, wall_seconds=1))
    server.close()
    with pytest.raises(Unread, match=why):
        server.read("hermes", text, [])
    assert server.read("hermes", CALL, []) == CALLED


def test_a_parser_that_it_does_not_have_and_a_token_that_its_tokenizer_lacks_are_unread(server):
    with pytest.raises(Unread, match="KeyError: 'gone'"):
        server.read("gone", CALL, [])
    with pytest.raises(Unread, match="no such token"):
        server.read("hermes", CALL, [], lacks="<tool_call>")


def test_behind_the_wall_nothing_but_the_environment_is_seen(server, tmp_path):
    (tmp_path / "secret").touch()
    [(_, found)] = server.read("hermes", f"LOOK {tmp_path}", [])
    assert json.loads(found)["found"] in ("PermissionError", "FileNotFoundError")


@pytest.mark.parametrize(
    ("engine", "python", "why"),
    [
        ("sglang", stand_in, "cannot import the parsers of sglang: ModuleNotFoundError: No module named 'sglang'"),
        ("vllm", lambda: "/no/such/python", "does not run as a Python interpreter"),
        ("vllm", lambda: "/bin/true", "does not run as a Python interpreter"),
    ],
)
def test_an_environment_that_cannot_be_used_says_why(engine, python, why):
    with pytest.raises(NoParsers, match=why):
        Parsers(engine, python())
