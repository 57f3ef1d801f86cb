"""A run handed to a real Ray cluster of one node, beside the same run on this machine."""

from __future__ import annotations

import importlib.util
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from qualgate.errors import Exit
from qualgate.workers.ray_reach import RAY_HERE
from tests.command_line import qualgate
from tests.postgresql import server
from tests.ray_dashboard import in_which_python_is_this
from tests.run.commands import changed

TOKEN = {"RAY_AUTH_TOKEN": "f" * 64}
BEGINS_WITHIN = 300  # s: the head, with its dashboard, whose parts Ray gives 30 s to begin; a busy machine takes longer
PATIENT = {
    "RAY_DASHBOARD_STARTUP_TIMEOUT_S": str(BEGINS_WITHIN),
    "RAY_DASHBOARD_SUBPROCESS_MODULE_WAIT_READY_TIMEOUT": str(BEGINS_WITHIN),
}
DASHBOARD = ("aiohttp_cors", "opencensus", "grpc")  # what `ray[default]` has beyond `ray`


@contextmanager
def head() -> Iterator[str]:
    """The address of the dashboard of a cluster of one node, which ends with the block."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory(prefix="qg", dir="/tmp", ignore_cleanup_errors=True) as folder:  # a socket's path
        command = [
            str(Path(sys.executable).with_name("ray")), "start", "--head", "--block", "--port=0", "--num-cpus=2",
            "--include-dashboard=true", f"--dashboard-port={port}", f"--temp-dir={folder}",
            f"--object-store-memory={80 * 2**20}", "--disable-usage-stats",
        ]  # fmt: skip
        at_once = {"RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "0"}
        by_token = TOKEN | {"RAY_AUTH_MODE": "token"}
        variables = os.environ | RAY_HERE | at_once | PATIENT | by_token | in_which_python_is_this()
        log = Path(folder) / "said"
        with (
            log.open("w") as said,
            subprocess.Popen(command, env=variables, stdout=said, stderr=said, start_new_session=True) as ray,
        ):
            try:
                if not _answers(ray, f"http://127.0.0.1:{port}"):
                    pytest.fail(f"no Ray head with a dashboard begins here: {log.read_text()[-2000:]}")
                yield f"http://127.0.0.1:{port}"
            finally:
                ray.terminate()  # it ends what it started
                ray.wait(60)


def _answers(ray: subprocess.Popen[bytes], address: str) -> bool:
    end = time.monotonic() + BEGINS_WITHIN
    while time.monotonic() < end and ray.poll() is None:
        try:
            with urllib.request.urlopen(f"{address}/api/version", timeout=5):
                return True
        except urllib.error.HTTPError:  # it asks for a token
            return True
        except OSError:
            time.sleep(0.2)
    return False


@pytest.mark.proof
@pytest.mark.skipif(not all(map(importlib.util.find_spec, DASHBOARD)), reason="ray[default] is not installed")
def test_a_run_on_a_cluster_ends_as_the_same_run_does_here_and_another_is_cancelled(
    finished, workspace, tmp_path, monkeypatch
):
    _, said = finished
    monkeypatch.setenv("RAY_AUTH_TOKEN", TOKEN["RAY_AUTH_TOKEN"])
    url = server().new_database()
    changed(
        workspace,
        ("backend: local", "backend: ray, address: auto"),
        ("./model", str(workspace / "model")),
        ("sqlite:///qualgate.db", url),
    )
    with head() as cluster:
        done = qualgate(
            "submit", "gate.yaml", "--cluster", cluster, "--folder", str(tmp_path / "shared"), cwd=workspace
        )
        assert done.returncode == Exit.APPROVE, done.stderr
        job = done.stdout.strip()
        ended = qualgate("wait", job, "--cluster", cluster, "--timeout", "600")
        assert ended.returncode == said.returncode == Exit.BLOCK, ended.stdout + ended.stderr
        assert "int2" in ended.stdout
        report = json.loads(qualgate("wait", job, "--cluster", cluster, "--json").stdout)
        assert {verdict["variant"] for verdict in report["verdicts"]} >= {"int2"}  # of the run itself
        assert any((tmp_path / "shared/qualgate.artifacts").iterdir())
        assert "exit 10 (block)" in qualgate("status", job, "--cluster", cluster).stdout
        again = qualgate("submit", "gate.yaml", "--cluster", cluster, cwd=workspace).stdout.strip()
        assert qualgate("cancel", again, "--cluster", cluster).returncode == Exit.APPROVE
        assert qualgate("wait", again, "--cluster", cluster).returncode in (Exit.INFRASTRUCTURE, Exit.TERMINATED)
