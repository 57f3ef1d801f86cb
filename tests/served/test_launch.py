"""Servers that a run starts: awaited, told of when they fail, and ended with whoever started them."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest

from qualgate.errors import InfrastructureError, UsageError
from qualgate.records import ArmSpec, Job, Served
from qualgate.served.launch import by_server, check_programs, reached

SERVER = """\
import http.server, json, os, pathlib, subprocess, sys
port, child = int(sys.argv[1]), subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
pathlib.Path("pids").write_text(f"{os.getpid()} {child.pid}")
class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200 if self.path == "/v1/models" else 404)
        self.end_headers()
        self.wfile.write(b"{}")
    def log_message(self, *_): ...
http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
"""


def job(command: str, name: str = "x") -> Job:
    arm = ArmSpec(name=name, model="m", served=Served(command=command))
    return Job(index=0, arm=arm, prompts=(), artifact="", drafted=False)


@pytest.fixture
def command(tmp_path: Path) -> str:
    (tmp_path / "server.py").write_text(SERVER)
    return f"{sys.executable} server.py {{port}}"


def alive(folder: Path) -> list[int]:
    """Of the server and its child those that still run."""
    found = []
    for pid in map(int, (folder / "pids").read_text().split()):
        state = "Z"
        with suppress(FileNotFoundError, ProcessLookupError):  # it may end while it is looked at
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        if state != "Z":
            found.append(pid)
    return found


def test_a_server_runs_for_its_jobs_and_no_longer(command, tmp_path):
    with reached([job(command)], tmp_path, lambda: False) as jobs:
        assert jobs[0].arm.served is not None
        assert jobs[0].arm.served.endpoint.startswith("http://127.0.0.1:")
        assert len(alive(tmp_path)) == 2
    assert alive(tmp_path) == []


@pytest.mark.parametrize("health", [401, 403])
def test_a_server_whose_pages_want_a_key_is_awaited_as_any_other(command, tmp_path, health):
    """As a LiteLLM proxy: it asks for a key at /health too."""
    (tmp_path / "server.py").write_text(SERVER.replace("else 404", f"else {health}"))
    with reached([job(command)], tmp_path, lambda: False) as jobs:
        assert len(jobs) == 1


def test_a_server_ends_with_the_process_that_started_it(command, tmp_path):
    program = (
        "import os, pathlib, sys; from tests.served.test_launch import job, reached\n"
        "with reached([job(sys.argv[1])], pathlib.Path(sys.argv[2]), lambda: False):\n"
        "    os.kill(os.getpid(), 9)\n"
    )
    subprocess.run([sys.executable, "-c", program, command, str(tmp_path)], check=False)
    until = time.monotonic() + 20
    while alive(tmp_path) and time.monotonic() < until:
        os.sched_yield()
    assert alive(tmp_path) == []


def test_one_that_ends_at_its_start_is_told_of_by_its_last_lines(tmp_path):
    (tmp_path / "broken.py").write_text(
        "for n in range(30): print('line', n)\nprint('CUDA out of memory \\x1b[31m')\nraise SystemExit(3)\n"
    )
    with (
        pytest.raises(InfrastructureError) as found,
        reached([job(f"{sys.executable} broken.py {{port}}")], tmp_path, lambda: False),
    ):
        pass
    said = str(found.value)
    assert "with code 3" in said
    assert "CUDA out of memory" in said
    assert "line 29" in said
    assert "line 10\n" not in said
    assert "\x1b" not in said


def test_a_key_in_a_servers_log_is_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv("SOME_KEY", "sk-canary-4711")
    (tmp_path / "broken.py").write_text("import os\nprint('args', os.environ['SOME_KEY'])\nraise SystemExit(3)\n")
    one = job(f"{sys.executable} broken.py {{port}}")
    assert one.arm.served is not None
    keyed = replace(one, arm=replace(one.arm, served=replace(one.arm.served, api_key_env="SOME_KEY")))
    with pytest.raises(InfrastructureError, match=r"args \*\*\*") as found, reached([keyed], tmp_path, lambda: False):
        pass
    assert "canary" not in str(found.value)


def test_a_command_that_a_shell_would_read_says_how_variables_are_set(tmp_path):
    arm = job("VLLM_BATCH_INVARIANT=1 vllm serve m --port {port}").arm
    assert arm.served is not None
    with pytest.raises(UsageError, match="variables are set by `env`"):
        check_programs([arm], tmp_path)


def test_a_command_that_is_not_there_is_the_users(tmp_path):
    with (
        pytest.raises(UsageError, match="no such program"),
        reached([job("vlllm serve m --port {port}")], tmp_path, lambda: False),
    ):
        pass


def test_a_stop_while_it_starts_ends_it(tmp_path):
    (tmp_path / "slow.py").write_text(
        "import os, pathlib, threading\npathlib.Path('pids').write_text(str(os.getpid()))\nthreading.Event().wait()\n"
    )
    started = (tmp_path / "pids").exists
    with reached([job(f"{sys.executable} slow.py {{port}}")], tmp_path, started) as jobs:
        assert jobs == []
        assert len(alive(tmp_path)) == 1
    assert alive(tmp_path) == []


def test_jobs_of_one_command_share_a_server_and_the_baselines_come_first():
    own = Job(index=0, arm=ArmSpec(name="own", model="m"), prompts=(), artifact="", drafted=False)
    jobs = [job("a {port}", "baseline"), own, job("b {port}", "v"), job("a {port}", "baseline@aa")]
    assert [[one.arm.name for one in group] for group in by_server(jobs)] == [
        ["baseline", "baseline@aa"],
        ["own"],
        ["v"],
    ]
