"""What lies on the disk between a baseline's job and a variant's: as it was written, or not used."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest
import torch

from qualgate.engine import artifact as artifacts
from qualgate.engine.artifact import read_artifact
from qualgate.engine.job import run_job
from qualgate.errors import InfrastructureError
from tests.engine.jobs import job

CPU = torch.device("cpu")


@pytest.fixture(scope="module", params=["exact", "rounded"])
def made(request, tiny_arm, tmp_path_factory):
    """(arm, artifact) in a run's folder; rounded: the columns of a large vocabulary."""
    file = tmp_path_factory.mktemp("artifact") / "run" / "job.safetensors"
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "rounded":
            patch.setattr(artifacts, "LARGE", 0)
        run_job(tiny_arm, job(tiny_arm, file, count=4))
    return tiny_arm, file


def copy_of(file: Path, folder: Path) -> Path:
    """The run's folder anew, under its name."""
    return Path(shutil.copytree(file.parent, folder / "run", dirs_exist_ok=True)) / file.name


def is_refused(arm, file: Path) -> bool:
    artifacts._head.cache_clear()
    with pytest.raises(InfrastructureError, match="Run again"):
        read_artifact(job(arm, file, count=4), CPU)
    return not file.exists()


def test_any_flipped_bit_any_cut_and_any_addition_is_found_and_the_file_is_made_again(made, tmp_path):
    """Each kind of byte of both files: the digest, the header's length and text, numbers from first to last."""
    arm, file = made
    rng = random.Random(0)
    for name in (file.name, next(file.parent.glob("head-*")).name):
        size = (file.parent / name).stat().st_size
        header = 40 + int.from_bytes((file.parent / name).read_bytes()[32:40], "little")
        places = {0, 31, 32, 39, 40, header - 1, header, size - 1, *(rng.randrange(size) for _ in range(12))}
        places |= {rng.randrange(40, header) for _ in range(8)}
        for at in sorted(places):
            copy = copy_of(file, tmp_path)
            data = bytearray((copy.parent / name).read_bytes())
            data[at] ^= 1 << rng.randrange(8)
            (copy.parent / name).write_bytes(data)
            assert is_refused(arm, copy), f"{name}, byte {at}"
        for length in (0, 31, 32, 40, header, size - 1):
            copy = copy_of(file, tmp_path)
            (copy.parent / name).write_bytes((copy.parent / name).read_bytes()[:length])
            assert is_refused(arm, copy), f"{name}, cut at {length}"
        copy = copy_of(file, tmp_path)
        (copy.parent / name).write_bytes((copy.parent / name).read_bytes() + b"\0")
        assert is_refused(arm, copy)


def test_a_whole_file_of_another_place_is_not_taken(made, tmp_path):
    arm, file = made
    head = next(file.parent.glob("head-*"))
    for source, to in ((file, "other/job.safetensors"), (file, "run/job-2.safetensors"), (head, f"other/{head.name}")):
        whole, _ = copy_of(file, tmp_path), (tmp_path / "other").mkdir(exist_ok=True)
        swapped = Path(shutil.copy(source, tmp_path / to))
        if source is head:
            swapped = Path(shutil.copy(file, tmp_path / "other" / file.name))
        assert is_refused(arm, swapped)
        assert whole.exists()


def test_what_was_written_is_read_again_to_the_bit(made, tmp_path):
    arm, file = made
    artifacts._head.cache_clear()
    one = read_artifact(job(arm, file, count=4), CPU)
    artifacts._head.cache_clear()
    other = read_artifact(job(arm, copy_of(file, tmp_path), count=4), CPU)
    assert one.answers == other.answers
    assert torch.equal(one.states, other.states)
    assert one.head is not None
    assert other.head is not None
    assert one.head.tensors.keys() == other.head.tensors.keys()
    assert all(torch.equal(tensor, other.head.tensors[name]) for name, tensor in one.head.tensors.items())
