"""`submit`, `status`, `cancel`, `wait` and `worker`: what is told, and the exit codes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from qualgate.errors import Exit
from qualgate.identity import own_version
from qualgate.store import leases, runs
from qualgate.store.database import open_store
from tests.command_line import qualgate
from tests.gated_model import GATE_FILE, write_evalset
from tests.store.made import make_plan, make_run
from tests.tiny_models import save_tiny_model

POOL = "sqlite:///pool.db"


@pytest.fixture(scope="module")
def made(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("made")
    save_tiny_model(folder / "model", seed=1, dtype="float32")
    (folder / "gate.yaml").write_text(GATE_FILE)
    write_evalset(folder, [{"id": "a", "task": "echo", "prompt": "abc", "max_new_tokens": 4, "answer": "b"}])
    return folder


@pytest.fixture
def workspace(made, tmp_path) -> Path:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    return tmp_path


def asked(*words: str, cwd: Path, code: int = 0) -> str:
    done = qualgate(*words, "--store", POOL, cwd=cwd)
    assert done.returncode == code, done.stderr
    return done.stdout if code == 0 else done.stderr


def submit(workspace: Path, *options: str) -> str:
    return asked("submit", "gate.yaml", *options, cwd=workspace).strip()


def ended(workspace: Path, name: str, exit: int, run_id: str | None = None, reason: str = "") -> None:
    """As by a node."""
    with open_store(f"sqlite:///{workspace / 'pool.db'}") as store:
        lease = leases.claim(store, "gpu-1", own_version(), 30.0).lease
        assert lease.submission == name
        if run_id is not None:
            with store.write() as connection:
                runs.name_run(connection, lease, run_id)
        leases.done(store, lease, exit, reason)


def test_a_run_is_handed_over_with_its_options_and_status_tells_of_it(workspace):
    name = submit(workspace, "--owner", "ada", "--priority", "5", "--limit", "3", "--only", "int2", "--blame")
    assert re.fullmatch(r"s\d{8}-\d{6}-[0-9a-f]{8}", name)
    told = json.loads(asked("status", "--json", cwd=workspace))
    [one] = told["submissions"]
    assert (one["id"], one["owner"], one["priority"], one["status"]) == (name, "ada", 5, "queued")
    assert one["submitted_at"].endswith("+00:00")
    assert (told["nodes"], told["rescued"]) == ([], 0)
    assert "no node is at work" in asked("status", cwd=workspace)
    assert json.loads(asked("status", name, "--json", cwd=workspace)) == one
    with open_store(f"sqlite:///{workspace / 'pool.db'}") as store:
        leases.enter(store, "gpu-1", own_version(), 30.0, 0.0)
        claimed = leases.claim(store, "gpu-1", own_version(), 30.0)
    assert claimed.submission.options == ("--blame", "--limit", "3", "--only", "int2")
    whole = asked("status", name, cwd=workspace)
    assert "at work on gpu-1" in whole
    assert "claim 1, 0 deaths" in whole
    assert re.search(r"node gpu-1 .* its clock \d+ s off", asked("status", cwd=workspace))


@pytest.mark.parametrize("code", [Exit.APPROVE, Exit.BLOCK])
def test_wait_shows_the_report_and_exits_by_the_verdict(workspace, code):
    name = submit(workspace)
    wrong = {"int4-g32": 0.0 if code is Exit.APPROVE else 0.5}
    with open_store(f"sqlite:///{workspace / 'pool.db'}") as store:
        run_id = make_run(store, make_plan(cases=60, wrong=wrong), wrong)
    ended(workspace, name, code, run_id)
    done = qualgate("wait", name, "--store", POOL, "--json", cwd=workspace)
    assert done.returncode == code
    assert json.loads(done.stdout)["run"] == run_id
    assert "int4-g32" in qualgate("wait", name, "--store", POOL, cwd=workspace).stdout
    assert f"done, exit {int(code)}" in asked("status", cwd=workspace)


@pytest.mark.parametrize("with_run", [True, False])
def test_wait_never_passes_on_the_word_of_the_queue_alone(workspace, with_run):
    """Whoever may write to the queue can write 0 there; a verdict is sealed."""
    name, run_id = submit(workspace), None
    if with_run:
        with open_store(f"sqlite:///{workspace / 'pool.db'}") as store:
            run_id = make_run(store, make_plan(cases=20, wrong={"int4-g32": 0.5}), {"int4-g32": 0.5})
    ended(workspace, name, Exit.APPROVE, run_id)
    assert qualgate("wait", name, "--store", POOL, cwd=workspace).returncode in (Exit.BLOCK, Exit.INTEGRITY)


def test_wait_says_why_a_run_could_not_begin(workspace):
    name = submit(workspace)
    ended(workspace, name, 64, reason="gate.yaml: the context is too short")
    assert "could not run: gate.yaml: the context is too short" in asked("wait", name, cwd=workspace, code=64)


def test_what_whoever_handed_over_wrote_moves_and_hides_nothing_on_another_s_screen(workspace):
    name = submit(workspace, "--owner", "eve\u202e\x1b[2J\ns1 ana done")
    ended(workspace, name, 64, reason="no\u202e\x1b[2J\nway")
    told = qualgate("status", name, "--store", POOL, cwd=workspace).stdout
    told += qualgate("status", "--store", POOL, cwd=workspace).stdout
    told += asked("wait", name, cwd=workspace, code=64)
    assert r"eve\u202e\u001b[2J s1 ana done" in told
    assert r"no\u202e\u001b[2J way" in told
    assert not set(told) & {"\u202e", "\x1b"}


def test_wait_ends_at_its_timeout_while_the_submission_goes_on(workspace):
    name = submit(workspace)
    told = asked("wait", name, "--timeout", "0", cwd=workspace, code=Exit.INFRASTRUCTURE)
    assert "queued" in told
    assert "has not ended within 0 s; it goes on" in told


def test_cancel_ends_a_queued_one_and_says_so_of_one_that_has_ended(workspace):
    name = submit(workspace)
    assert f"{name} is cancelled" in asked("cancel", name, cwd=workspace)
    assert f"{name} was cancelled before" in asked("cancel", name, cwd=workspace)
    assert "was cancelled: cancelled by" in asked("wait", name, cwd=workspace, code=Exit.INTERRUPTED)
    other = submit(workspace)
    ended(workspace, other, 10)
    told = asked("cancel", other, cwd=workspace, code=Exit.USAGE)
    assert "has ended already: done, exit 10 (block). There is nothing to cancel" in told


def test_wait_tells_what_was_set_apart_with_the_reason(workspace, monkeypatch):
    monkeypatch.setattr(leases, "PAUSE_SECONDS", 0.0)
    name = submit(workspace)
    with open_store(f"sqlite:///{workspace / 'pool.db'}") as store:
        for _ in range(3):
            leases.died(store, leases.claim(store, "gpu-1", own_version(), 30.0).lease, "node gpu-1: signal 9")
    told = asked("wait", name, cwd=workspace, code=Exit.INFRASTRUCTURE)
    assert "set apart: 3 workers ended without a verdict; the last: node gpu-1: signal 9" in told


def test_a_node_without_the_model_gives_the_run_back_and_says_which_path(workspace):
    name = submit(workspace)
    shutil.rmtree(workspace / "model")
    words = ("--store", POOL, "--name", "gpu-1", "--until-empty", "--folder", str(workspace / "node"))
    done = qualgate("worker", *words, cwd=workspace)
    assert done.returncode == 0
    assert f"gave back {name}" in done.stderr
    reason = f"given back by node gpu-1: {workspace / 'model'} is not there"
    assert reason in " ".join(asked("status", name, cwd=workspace).split())


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("submit", "none.yaml", "--store", POOL), "none.yaml"),
        (("status", "s1", "--store", POOL), "there is no store yet"),
        (("worker", "--store", "sqlite:///none/pool.db"), "does not exist"),
        (("worker", "--store", POOL, "--lease", "1"), "--lease"),
        (("run", "gate.yaml", "--lease", "s1"), "expected ID:TOKEN"),
    ],
)
def test_what_cannot_be_is_refused_with_the_next_step(workspace, words, told):
    done = qualgate(*words, cwd=workspace)
    assert done.returncode == Exit.USAGE
    assert told in done.stderr


def test_run_keeps_its_run_in_another_store_than_the_gate_files(workspace, monkeypatch):
    from qualgate.cli import judging

    seen = []
    monkeypatch.setattr(judging, "run_and_show", lambda file, gate, *rest, **more: seen.append(gate.store_url))
    assert qualgate("run", "gate.yaml", "--store", "sqlite:///other.db", cwd=workspace).returncode == 0
    assert seen == [f"sqlite:///{workspace / 'other.db'}"]
