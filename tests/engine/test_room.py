"""How much memory keys and values may take: of what this process may still take, whoever limits it."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from qualgate.engine import room
from qualgate.engine.room import LEAST, SHARE

GIB = 2**30


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine that says of itself what the test writes: free bytes, and (limit, used, of what) of a group."""

    def says(free: str | None, group: tuple[str, ...] | None) -> None:
        (tmp_path / "meminfo").write_text(
            "MemTotal: 99 kB\n" + (f"MemAvailable:   {free} kB\nBuffers: 1 kB\n" if free else "")
        )
        for name, text in zip(("max", "current", "stat"), group or (), strict=False):
            (tmp_path / name).write_text(f"{text}\n")
        monkeypatch.setattr(room, "MEMORY", tmp_path / "meminfo" if free is not None else tmp_path / "none")
        groups = (tmp_path / "max", tmp_path / "current", tmp_path / "stat"), (Path("/no"), Path("/such"), Path("/one"))
        monkeypatch.setattr(room, "CGROUPS", groups)

    return says


def test_without_a_group_it_is_what_the_machine_has_free(machine):
    machine(str(8 * 2**20), None)
    assert room.free() == 8 * GIB
    assert room.room() == SHARE * 8 * GIB


def test_a_groups_limit_counts_where_it_leaves_less(machine):
    machine(str(8 * 2**20), (str(3 * GIB), str(GIB)))
    assert room.free() == 2 * GIB
    machine(str(2**20), (str(30 * GIB), "0"))
    assert room.free() == GIB


def test_files_that_were_read_do_not_count_as_used(machine):
    machine(str(8 * 2**20), (str(3 * GIB), str(2 * GIB), f"anon 5\ninactive_file {GIB}\nactive_file 7"))
    assert room.free() == 2 * GIB


def test_a_group_without_a_limit_limits_nothing(machine):
    machine(str(2**20), ("max", "5"))
    assert room.free() == GIB


def test_a_group_beyond_its_limit_leaves_nothing_and_one_answers_all_the_same(machine):
    machine(str(2**20), ("100", "200"))
    assert room.free() == 0
    assert room.room() == LEAST


@pytest.mark.parametrize("free", [None, "", "many"])
def test_a_machine_that_does_not_say_has_the_least(machine, free):
    machine(free, None)
    assert room.room() == LEAST


def test_a_lack_of_memory_is_told_from_other_errors_whoever_raises_it():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**50, dtype=torch.uint8)
    assert all(map(room.is_short, (raised.value, MemoryError(), torch.OutOfMemoryError())))
    assert not any(map(room.is_short, (RuntimeError("a kernel failed"), ValueError("DefaultCPUAllocator"))))
