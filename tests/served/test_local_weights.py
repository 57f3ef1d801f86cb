"""What lies here of the models that a command serves: the same command over other files is another arm."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.errors import IntegrityError
from qualgate.records import ArmSpec, Served, identity
from qualgate.served.declared import identify_served
from qualgate.served.launch import running
from qualgate.served.local_weights import weights_of

COMMANDS = (
    "vllm serve ./m --port {port}",
    "server --model=./m --port {port}",
    """vllm serve x --speculative-config '{"model": "./m", "method": "draft_model"}' --port {port}""",
    "llama-server -m one.gguf --port {port}",
    "llama-server -m s-00001-of-00002.gguf --port {port}",  # reads the second part, too
)
PARTS = ("s-00001-of-00002.gguf", "s-00002-of-00002.gguf")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "m").mkdir()
    files = {"m/config.json": "{}", "m/a.safetensors": "a", "m/log.out": "", **dict.fromkeys((*PARTS, "one.gguf"), "g")}
    for file, text in files.items():
        (tmp_path / file).write_text(text)
    return tmp_path


@pytest.mark.parametrize("command", COMMANDS)
def test_other_files_behind_a_command_are_other_weights(command, folder):
    before = weights_of(command, folder)
    (folder / "m" / "log.out").write_text("what a server writes")
    assert weights_of(command, folder) == before != ""
    for file in ("m/a.safetensors", "one.gguf", PARTS[1]):
        (folder / file).write_text("b")
    assert weights_of(command, folder) != before


@pytest.mark.parametrize("named", ["org/model", "..", "x" * 5000, "'a\0b'", "[[[1]]]", "m/config.json"])
def test_what_is_no_model_here_has_none(named, folder):
    assert weights_of(f"vllm serve {named} --port {{port}}", folder) == ""


def test_a_server_is_not_started_over_files_that_changed_since_they_were_planned(folder):
    served = Served(command=COMMANDS[0])
    arm = ArmSpec(name="v", model="m", served=replace(served, weights=weights_of(COMMANDS[0], folder)))
    unheld = identify_served(replace(arm, served=served), None, {}, "")
    assert identify_served(arm, None, {}, "").weights != unheld.weights
    (folder / "m" / "a.safetensors").write_text("b")
    with pytest.raises(IntegrityError, match="not those that the run was planned with"), running(arm, folder, bool):
        pass


def test_a_plan_and_a_start_read_the_files_once_and_files_that_came_in_their_place_again(folder, monkeypatch):
    read, digest, now = [], identity.hashlib.file_digest, identity.time.time_ns()
    monkeypatch.setattr(identity.time, "time_ns", lambda: now + 10**10)
    monkeypatch.setattr(identity.hashlib, "file_digest", lambda file, how: read.append(file.name) or digest(file, how))
    planned, started = weights_of(COMMANDS[0], folder), weights_of(COMMANDS[0], folder)
    assert planned == started
    assert len(read) == 2  # its config and its weights
    (folder / "other").write_text("b")
    (folder / "other").replace(folder / "m" / "a.safetensors")
    assert weights_of(COMMANDS[0], folder) != planned
    assert len(read) == 3
