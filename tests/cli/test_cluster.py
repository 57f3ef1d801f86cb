"""`submit`, `status`, `wait` and `cancel` against a stand-in for Ray's dashboard that replies as Ray's own does."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from qualgate.cli import cluster as commands
from qualgate.errors import Exit
from qualgate.pipeline.cluster import jobs
from qualgate.pipeline.cluster.inside import End, end_line
from qualgate.records.identity import own_version
from tests.command_line import qualgate
from tests.ray_dashboard import Dashboard, dashboard

pytest.importorskip("ray")
pytest.importorskip("requests")
GATE = """\
version: 1
baseline: {model: /shared/models/support}
variants: {int8: {quantize: int8}}
evalsets: [json_extract]
gate: {rules: [{metric: exact_match, max_drop: 0.02}]}
store: postgresql://gate@db.example.org/gate
workers: {backend: ray, address: auto}
"""


@pytest.fixture
def ray():
    with dashboard() as server:
        yield server


@pytest.fixture
def gate(tmp_path) -> Path:
    (tmp_path / "gate.yaml").write_text(GATE)
    return tmp_path


def submitted(ray: Dashboard, folder: Path, *options: str) -> str:
    done = qualgate("submit", "gate.yaml", "--cluster", ray.address, *options, cwd=folder)
    assert done.returncode == Exit.APPROVE, done.stderr
    return done.stdout.strip()


def ended(ray: Dashboard, job: str, code: int, status: str = "FAILED", **said: str) -> None:
    end = End(**{"id": job, "exit": code, "shown": f"BLOCK\nrun of {job}\n", "report": '{"exit": 10}\n'} | said)
    ray.end(job, status, f"some progress\n{end_line(end)}\n(pid=7) a late word\n")


def asked(ray: Dashboard, command: str, job: str, *options: str):
    return qualgate(command, job, "--cluster", ray.address, *options)


def test_a_submission_is_a_job_that_runs_the_gate_file_with_its_options(ray, gate):
    job = submitted(ray, gate, "--blame", "--limit", "3", "--only", "int8", "--folder", "/shared/q")
    words = shlex.split(ray.jobs[job]["entrypoint"])
    assert words == ["python", "-m", "qualgate.pipeline.cluster.inside", job, own_version(), "/shared/q",
                     '["gate.yaml"]', "gate.yaml",
                     "--blame", "--limit", "3", "--only", "int8"]  # fmt: skip
    assert ray.files(job) == {"gate.yaml": GATE.encode()}
    assert (
        f"to {ray.address} travel: gate.yaml\n"
        in qualgate("submit", "gate.yaml", "--cluster", ray.address, cwd=gate).stderr
    )
    assert job.startswith("qualgate-")
    assert submitted(ray, gate) != job


def test_wait_shows_the_report_and_exits_with_the_code_that_the_run_told(ray, gate):
    job = submitted(ray, gate)
    ended(ray, job, Exit.BLOCK)
    done = asked(ray, "wait", job)
    assert (done.returncode, done.stdout) == (Exit.BLOCK, f"BLOCK\nrun of {job}\n")
    assert asked(ray, "wait", job, "--json").stdout == '{"exit": 10}\n'
    ended(ray, job, Exit.APPROVE, "SUCCEEDED")
    assert asked(ray, "wait", job).returncode == Exit.APPROVE


@pytest.mark.parametrize(
    ("code", "status", "id"),
    [
        (0, "SUCCEEDED", "another"),  # a line that a model wrote
        (1, "FAILED", None),  # no exit code of ours
        (None, "SUCCEEDED", None),
        (None, "FAILED", None),
    ],
)
def test_an_end_that_the_run_did_not_tell_is_a_failure_of_the_infrastructure(ray, gate, code, status, id):
    job = submitted(ray, gate)
    if code is None:
        ray.end(job, status, "qualgate: the disk is full\nand more\n")
    else:
        ended(ray, job, code, status, id=id or job)
    done = asked(ray, "wait", job)
    assert done.returncode == Exit.INFRASTRUCTURE
    assert f"did not say how its run ended: {status} by Ray" in " ".join(done.stderr.split())
    assert code is not None or done.stdout == "qualgate: the disk is full\nand more\n"


@pytest.mark.parametrize("status", ["FAILED", "STOPPED"])
def test_an_approval_that_ray_contradicts_is_none_and_both_are_named(ray, gate, status):
    job = submitted(ray, gate)
    ended(ray, job, 0, status)
    done = asked(ray, "wait", job)
    assert done.returncode == Exit.INFRASTRUCTURE
    told = f"the run says that it ended with exit 0, and its job is {status} by Ray"
    assert told in " ".join(done.stderr.split())
    shown = asked(ray, "status", job).stdout
    assert f"ended, exit 13 (infrastructure): {job}: {told}" in shown
    for command in ("status", "wait"):
        assert json.loads(asked(ray, command, job, "--json").stdout)["exit"] == Exit.INFRASTRUCTURE


def test_a_run_that_ended_without_a_report_shows_the_error_it_ended_with(ray, gate):
    job = submitted(ray, gate)
    end = end_line(End(id=job, exit=Exit.USAGE, shown="", report=""))
    ray.end(job, "FAILED", f"noise\nqualgate: no \x1b[2Jmodel folder\n{end}\n")
    done = asked(ray, "wait", job)
    assert (done.returncode, done.stdout) == (Exit.USAGE, "qualgate: no \\u001b[2Jmodel folder\n")
    assert json.loads(asked(ray, "wait", job, "--json").stdout)["exit"] == Exit.USAGE


def test_a_run_at_work_is_waited_for_until_the_timeout_and_can_be_cancelled(ray, gate, monkeypatch):
    monkeypatch.setattr(commands, "LOOK_SECONDS", 0.01)
    job = submitted(ray, gate)
    assert "waits for its turn" in asked(ray, "status", job).stdout
    ray.jobs[job]["status"] = "RUNNING"
    done = asked(ray, "wait", job, "--timeout", "0.05")
    assert done.returncode == Exit.INFRASTRUCTURE
    assert f"{job}: at work" in done.stderr
    assert "is still running after" in done.stderr
    assert json.loads(asked(ray, "status", job, "--json").stdout) | {"message": ""} == {
        "id": job, "status": "RUNNING", "gate_file": "gate.yaml", "began": 1.7e9, "ended": None, "message": "",
        "exit": None,
    }  # fmt: skip
    assert "asked to stop" in asked(ray, "cancel", job).stdout
    assert "was cancelled" in asked(ray, "status", job).stdout
    again = asked(ray, "cancel", job)
    assert again.returncode == Exit.USAGE
    assert "has already ended (STOPPED)" in again.stderr
    assert asked(ray, "wait", job).returncode == Exit.INFRASTRUCTURE


def test_a_run_that_was_cancelled_and_said_so_exits_as_terminated(ray, gate):
    job = submitted(ray, gate)
    ended(ray, job, Exit.TERMINATED, "STOPPED")
    assert asked(ray, "wait", job).returncode == Exit.TERMINATED
    assert "ended, exit 143 (terminated)" in asked(ray, "status", job).stdout


def test_a_cluster_that_is_away_for_a_while_is_asked_again(ray, gate, monkeypatch):
    job = submitted(ray, gate)
    ended(ray, job, Exit.BLOCK)
    answer, away = ray.reply, [502, 502]

    def reply(verb, path, body):
        return (away.pop(), "") if away and path.endswith(job) else answer(verb, path, body)

    monkeypatch.setattr(commands, "LOOK_SECONDS", 0.01)
    monkeypatch.setattr(ray, "reply", reply)
    assert asked(ray, "wait", job).returncode == Exit.BLOCK
    assert not away
    away[:] = [502] * 3
    monkeypatch.setattr(commands, "PATIENCE", 0.0)
    assert asked(ray, "wait", job).returncode == Exit.INFRASTRUCTURE


def test_a_cluster_that_has_just_begun_is_asked_until_it_takes_the_job(ray, gate, monkeypatch):
    answer, away = ray.reply, [500, 500]

    def reply(verb, path, body):
        if verb == "POST" and away:
            return away.pop(), "No available agent to submit job, please try again later."
        return answer(verb, path, body)

    monkeypatch.setattr(jobs, "AGENT_PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(ray, "reply", reply)
    assert [submitted(ray, gate)] == list(ray.jobs)
    away[:] = [500]
    monkeypatch.setattr(jobs, "AGENT_SECONDS", -1.0)
    refused = qualgate("submit", "gate.yaml", "--cluster", ray.address, cwd=gate)
    assert (refused.returncode, len(ray.jobs)) == (Exit.INFRASTRUCTURE, 1)
    assert "No available agent" in refused.stderr


@pytest.mark.parametrize("command", ["status", "wait", "cancel"])
def test_a_job_or_a_cluster_that_is_not_there_is_told(ray, command):
    done = asked(ray, command, "qualgate-none")
    assert done.returncode == Exit.USAGE
    assert "has no job 'qualgate-none'" in " ".join(done.stderr.split())
    ray.refuses = 500
    assert asked(ray, command, "qualgate-none").returncode == Exit.INFRASTRUCTURE
    ray.refuses = 403
    assert "Set RAY_AUTH_TOKEN" in asked(ray, command, "qualgate-none").stderr
    away = qualgate(command, "qualgate-none", "--cluster", "http://127.0.0.1:1")
    assert away.returncode == Exit.INFRASTRUCTURE
    assert "no Ray dashboard answers at http://127.0.0.1:1" in " ".join(away.stderr.split())
    other = qualgate(command, "qualgate-none", "--cluster", "ray://head:10001")
    assert other.returncode == Exit.USAGE
    assert "such as http://HEAD:8265" in " ".join(other.stderr.split())


def test_the_cluster_s_token_is_sent_with_every_request(ray, gate):
    done = qualgate("submit", "gate.yaml", "--cluster", ray.address, cwd=gate, RAY_AUTH_TOKEN="c0ffee")
    assert done.returncode == Exit.APPROVE, done.stderr
    assert ray.tokens == {"Bearer c0ffee"}


def test_a_token_in_a_file_is_sent_where_it_is_meant(ray, gate, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "RAY_AUTH_MODE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / ".ray").mkdir()
    (tmp_path / ".ray/auth_token").write_text("of another cluster\n")

    def submit(**variables: str):
        ray.tokens.clear()
        return qualgate("submit", "gate.yaml", "--cluster", ray.address, cwd=gate, **variables)

    assert submit().returncode == Exit.APPROVE
    assert ray.tokens == {None}
    assert submit(RAY_AUTH_MODE="token").returncode == Exit.APPROVE
    assert ray.tokens == {"Bearer of another cluster"}
    (tmp_path / "mine").write_text("c0ffee\n")
    assert submit(RAY_AUTH_TOKEN_PATH=str(tmp_path / "mine")).returncode == Exit.APPROVE
    assert ray.tokens == {"Bearer c0ffee"}
    done = submit(RAY_AUTH_TOKEN_PATH=str(tmp_path / "none"))
    assert done.returncode == Exit.USAGE
    assert f"{tmp_path / 'none'}, which should hold the cluster's token" in " ".join(done.stderr.split())
    assert not ray.tokens


def test_the_address_that_is_given_counts_whatever_ray_s_variables_say(ray, gate):
    done = qualgate("submit", "gate.yaml", "--cluster", ray.address, cwd=gate, RAY_ADDRESS="http://127.0.0.1:1")
    assert done.returncode == Exit.APPROVE, done.stderr


def test_a_job_runs_and_its_failure_is_told_by_the_run_itself(ray, gate, tmp_path):
    """The whole chain but for Ray: no server is at the store's address."""
    (gate / "gate.yaml").write_text(
        GATE.replace("/shared/models/support", "reference").replace("db.example.org", "127.0.0.1:1")
    )
    job = submitted(ray, gate, "--folder", str(tmp_path / "shared"))
    ray.run(job, tmp_path / "node")
    done = asked(ray, "wait", job)
    assert done.returncode == Exit.INFRASTRUCTURE
    assert done.stdout.startswith("qualgate: postgresql://gate@127.0.0.1:1/gate: ")
    assert "did not say" not in done.stderr
    [home] = [path for path in (tmp_path / "shared").iterdir() if path.name != "qualgate.artifacts"]
    assert (home / "gate.yaml").is_file()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("submit", "gate.yaml", "--cluster", "http://h:8265", "--folder", "here"), "give an absolute path"),
    ],
)
def test_what_went_and_what_is_wrong_gets_one_line(gate, words, said):
    done = qualgate(*words, cwd=gate)
    assert done.returncode == Exit.USAGE
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
