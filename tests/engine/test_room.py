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

    def says(free: str | None, group: tuple[str, ...]) -> None:
        (tmp_path / "meminfo").write_text(
            "MemTotal: 99 kB\n" + (f"MemAvailable:   {free} kB\nBuffers: 1 kB\n" if free else "")
        )
        for name, text in zip(("max", "current", "stat"), group, strict=False):
            (tmp_path / name).write_text(f"{text}\n")
        monkeypatch.setattr(room, "MEMORY", tmp_path / "meminfo" if free is not None else tmp_path / "none")
        groups = (tmp_path / "max", tmp_path / "current", tmp_path / "stat"), (Path("/no"), Path("/such"), Path("/one"))
        monkeypatch.setattr(room, "CGROUPS", groups)

    return says


EIGHT = str(8 * 2**20)  # kB
FREE = {
    "no group": (EIGHT, (), 8 * GIB),
    "a group's limit leaves less": (EIGHT, (str(3 * GIB), str(GIB)), 2 * GIB),
    "a group's limit leaves more": (EIGHT, (str(30 * GIB), "0"), 8 * GIB),
    "files that were read": (
        EIGHT,
        (str(3 * GIB), str(2 * GIB), f"anon 5\ninactive_file {GIB}\nactive_file 7"),
        2 * GIB,
    ),
    "a group without a limit": (EIGHT, ("max", "5"), 8 * GIB),
}


@pytest.mark.parametrize("where", FREE)
def test_free_is_what_the_machine_has_and_its_group_leaves(machine, where):
    free, group, expected = FREE[where]
    machine(free, group)
    assert room.free() == expected
    assert room.room() == SHARE * expected


def test_a_group_beyond_its_limit_leaves_nothing_and_one_answers_all_the_same(machine):
    machine(str(2**20), ("100", "200"))
    assert room.free() == 0
    assert room.room() == LEAST


@pytest.mark.parametrize("free", [None, "", "many"])
def test_a_machine_that_does_not_say_has_the_least(machine, free):
    machine(free, ())
    assert room.room() == LEAST


def test_a_lack_of_memory_is_told_from_other_errors_whoever_raises_it():
    with pytest.raises(RuntimeError) as raised:
        torch.empty(2**50, dtype=torch.uint8)
    assert all(map(room.is_short, (raised.value, MemoryError(), torch.OutOfMemoryError())))
    assert not any(map(room.is_short, (RuntimeError("a kernel failed"), ValueError("DefaultCPUAllocator"))))
