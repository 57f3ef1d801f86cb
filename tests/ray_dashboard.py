"""A stand-in for the job server of a Ray dashboard: the replies of Ray 2.60's own, jobs whose end a test decides."""

from __future__ import annotations

import io
import json
import os
import re
import subprocess
import sys
import threading
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

VERSION = {"version": "4", "ray_version": "2.60.0", "ray_commit": "{{RAY_COMMIT_SHA}}", "session_name": "session_1"}


@dataclass
class Dashboard:
    """Its address; jobs by their ids, as `GET /api/jobs/ID` tells of them, and their logs; packages by name."""

    address: str = ""
    jobs: dict[str, dict[str, Any]] = field(default_factory=dict)
    logs: dict[str, str] = field(default_factory=dict)
    packages: dict[str, bytes] = field(default_factory=dict)
    tokens: set[str | None] = field(default_factory=set)  # that requests came with
    refuses: int = 0  # with this status, every request; 0: none

    def files(self, job: str) -> dict[str, bytes]:
        """What travelled with the job."""
        with zipfile.ZipFile(io.BytesIO(self.packages[self._package(job)])) as package:
            return {name: package.read(name) for name in package.namelist() if not name.endswith("/")}

    def run(self, job: str, folder: Path) -> None:
        """Run the entry point as Ray's supervisor does: in the unpacked files, by a shell, both streams to the log."""
        with zipfile.ZipFile(io.BytesIO(self.packages[self._package(job)])) as package:
            package.extractall(folder)
        variables = in_which_python_is_this()
        done = subprocess.run(
            self.jobs[job]["entrypoint"], shell=True, cwd=folder, env=os.environ | variables,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False,
        )  # fmt: skip
        self.end(job, "FAILED" if done.returncode else "SUCCEEDED", done.stdout)

    def end(self, job: str, status: str, log: str) -> None:
        """Ray says so of it from now on."""
        tail = (
            f"Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):\n{log}"
        )
        self.logs[job] = log
        self.jobs[job] |= {
            "status": status,
            "message": tail if status == "FAILED" else "done",
            "end_time": 1_700_000_060_000,
        }

    def _package(self, job: str) -> str:
        return self.jobs[job]["runtime_env"]["working_dir"].removeprefix("gcs://")

    def reply(self, verb: str, path: str, body: bytes) -> tuple[int, Any]:
        """Return a status, and a text or what becomes JSON."""
        if self.refuses:
            return self.refuses, "no"
        if path == "/api/version":
            return 200, VERSION
        if found := re.fullmatch("/api/packages/gcs/(.+)", path):
            if verb == "PUT":
                self.packages[found[1]] = body
            return (200, "") if found[1] in self.packages else (404, "no such package")
        if (verb, path) == ("POST", "/api/jobs/"):
            asked = json.loads(body)
            name = asked["submission_id"]
            self.jobs[name] = asked | {
                "type": "SUBMISSION", "job_id": None, "status": "PENDING", "message": "Job has not started yet.",
                "start_time": 1_700_000_000_000, "end_time": None, "driver_exit_code": None,
            }  # fmt: skip
            return 200, {"job_id": name, "submission_id": name}
        return self._of_job(*re.fullmatch("/api/jobs/([^/]+)/?(.*)", path).groups())  # type: ignore[union-attr]

    def _of_job(self, name: str, what: str) -> tuple[int, Any]:
        job = self.jobs.get(name)
        if job is None:
            return 404, f"Job {name} does not exist"
        if what == "logs":
            return 200, {"logs": self.logs.get(name, "")}
        if what == "stop":
            stopped = job["status"] in ("PENDING", "RUNNING")
            if stopped:
                self.end(name, "STOPPED", self.logs.get(name, ""))
            return 200, {"stopped": stopped}
        return 200, job


def in_which_python_is_this() -> dict[str, str]:
    """Variables with which a job's `python` is this interpreter and finds this checkout."""
    root = str(Path(__file__).resolve().parents[1])
    return {
        "PATH": os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"])),
        "PYTHONPATH": os.pathsep.join((root, os.environ.get("PYTHONPATH", ""))),
    }


@contextmanager
def dashboard() -> Iterator[Dashboard]:
    """One that answers at a port of its own."""
    made = Dashboard()

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            made.tokens.add(self.headers.get("Authorization"))
            body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, said = made.reply(self.command, self.path, body)
            data = (said if isinstance(said, str) else json.dumps(said)).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        do_GET = do_POST = do_PUT = _answer

        def log_message(self, format: str, *args: Any) -> None:
            """Nothing on stderr."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        made.address = f"http://127.0.0.1:{server.server_port}"
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        try:
            yield made
        finally:
            server.shutdown()
