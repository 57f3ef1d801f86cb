"""What lies on the disk between a kill and a resume: damaged there, it is made again, and the evidence is the same."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from qualgate import run as main_path
from qualgate.config import load_gate_file
from qualgate.engine.artifact import _head
from qualgate.engine.job import run_job
from qualgate.engine.load import load_arm
from qualgate.errors import InfrastructureError
from qualgate.pipeline import generating
from qualgate.pipeline.jobs import drop_damaged
from qualgate.records import JobFailure
from tests.run.commands import rows


class Killed(Exception):
    """The machine went away here."""


def run(folder: Path, monkeypatch, *, dies_after: int | None = None) -> main_path.Outcome:
    """In this process, the baseline's jobs first."""
    arms = {}

    def run_jobs(jobs, settings, *other, **more):
        for ended, job in enumerate(sorted(jobs, key=lambda job: not job.arm.is_baseline)):
            if ended == dies_after:
                raise Killed
            _head.cache_clear()  # as a new process has none
            if job.arm not in arms:
                arms[job.arm] = load_arm(job.arm, settings.cache_dir, settings.sampling, device="cpu")
            try:
                yield run_job(arms[job.arm], job)
            except InfrastructureError as error:
                keys = tuple(prompt.key for prompt in job.prompts)
                yield JobFailure(index=job.index, arm=job.arm.name, keys=keys, error=str(error))

    monkeypatch.setattr(generating, "run_jobs", run_jobs)
    monkeypatch.setattr("qualgate.pipeline.batches.JOB_ROWS", 24)  # three jobs an arm
    said: list[str] = []
    outcome = main_path.run_gate(load_gate_file(folder / "gate.yaml"), warn=said.append)
    (folder / "said").write_text("\n".join(said))
    return outcome


def evidence(folder: Path) -> list[tuple]:
    """Answers and drift, to the bit."""
    return rows(folder, "select arm, case_id, answer_sha256, hex(kl) from units order by arm, case_id")


@pytest.fixture(scope="module")
def whole(made, tmp_path_factory) -> tuple[Path, main_path.Outcome]:
    folder = Path(shutil.copytree(made, tmp_path_factory.mktemp("whole"), dirs_exist_ok=True))
    with pytest.MonkeyPatch.context() as patch:
        return folder, run(folder, patch)


@pytest.mark.parametrize("name", ["job-*", "head-*"])
def test_what_was_damaged_between_kill_and_resume_is_made_again(whole, workspace, monkeypatch, name):
    with pytest.raises(Killed):
        run(workspace, monkeypatch, dies_after=4)  # the baseline's three, and one of a variant
    rng, damaged = random.Random(0), list(workspace.glob(f"qualgate.db.artifacts/*/{name}"))
    assert damaged
    for file in damaged:
        data = bytearray(file.read_bytes())
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        file.write_bytes(data)
    resumed = run(workspace, monkeypatch)
    assert resumed.resumed
    assert "made again" in (workspace / "said").read_text()
    assert not resumed.failures
    assert resumed.verdicts == whole[1].verdicts
    assert evidence(workspace) == evidence(whole[0])


def test_what_lost_engines_have_left_unfinished_is_gone_once_the_run_goes_on(workspace, monkeypatch):
    with pytest.raises(Killed):
        run(workspace, monkeypatch, dies_after=2)
    [kept, *_] = workspace.glob("qualgate.db.artifacts/*/job-*")
    attempts = [kept.with_name(f"{attempt}-{kept.name}.part{more}") for attempt, more in (("a-1", ""), (".a-1", "-x"))]
    for left in attempts:
        left.write_bytes(kept.read_bytes())
    drop_damaged(kept.parent)
    assert kept.exists()
    assert not [left for left in attempts if left.exists()]


def test_what_is_damaged_under_way_fails_its_jobs_and_the_next_run_makes_it_again(whole, workspace, monkeypatch):
    original = main_path.drop_damaged

    def damage(artifacts: Path) -> int:
        found = original(artifacts)
        for file in artifacts.glob("job-*"):
            file.write_bytes(file.read_bytes()[:-1])
        return found

    with pytest.raises(Killed):
        run(workspace, monkeypatch, dies_after=4)
    with monkeypatch.context() as patch:
        patch.setattr(main_path, "drop_damaged", damage)
        failed = run(workspace, patch)
    assert failed.exit == 13
    assert failed.failures
    assert "not those that were written" in failed.failures[0]
    assert all("Run again" in failure for failure in failed.failures)
    again = run(workspace, monkeypatch)
    assert (again.run_id, again.verdicts) == (failed.run_id, whole[1].verdicts)
    assert evidence(workspace) == evidence(whole[0])
