"""Hostile programs stay in, leave nothing behind, and honest ones beside them do not notice (S1-S17)."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest

from qualgate.sandbox import Ended, Limits, Sandbox, SandboxFailed, Tier, probe, tiers
from qualgate.sandbox.process import _children
from tests.verification.escapes.ground import ground
from tests.verification.escapes.hostile import ESCAPES
from tests.verification.escapes.suite import attempt, escapes

WAITS = ("S10", "S1 forks", "S2 many")  # end by wall time
QUICK = tuple(name for name in ESCAPES if not name.startswith(WAITS))


def test_escapes_fail_one_at_a_time(sandbox):
    with ground() as (place, changed):
        faults = [fault for name in QUICK[1::2] for fault in attempt(name, sandbox, place)]
    assert faults + changed == []


@pytest.mark.proof
def test_eight_at_once_harm_neither_the_host_nor_each_other(sandbox):
    assert escapes(sandbox, 8, names=tuple(ESCAPES)[::2], mutants=4, wall=2) == []


def test_a_limit_on_cpu_time_ends_a_loop_and_one_on_wall_time_a_sleep(sandbox):
    for program, said, limits in (
        ("while True: pass", "CPU time", Limits(cpu_seconds=1, wall_seconds=60)),
        ("import time; time.sleep(60)", "wall time", Limits(wall_seconds=1)),
    ):
        with pytest.raises(Ended, match=said) as ended, replace(sandbox, limits=limits).interpreter() as inside:
            inside.ask({"op": "load", "args": [program, []]})
        assert ended.value.error_type == "timeout"


def test_time_spent_queueing_for_a_cpu_is_not_wall_time(sandbox, monkeypatch):
    waited = iter([0.0, 0.7, 0.7])
    monkeypatch.setattr("qualgate.sandbox.process._queued", lambda task: next(waited))
    limited = replace(sandbox, limits=Limits(wall_seconds=1))
    with limited.interpreter() as inside:
        assert inside._was_starved()
        with pytest.raises(Ended, match="wall time"):
            inside.ask({"op": "load", "args": ["import time\ntime.sleep(60)", []]})
        assert inside.starved == 0.7


def test_a_crowd_of_its_own_does_not_keep_a_sandbox_alive(sandbox, monkeypatch):
    monkeypatch.setattr("qualgate.sandbox.process._queued", lambda task: 1000.0)
    with replace(sandbox, limits=Limits(wall_seconds=1)).interpreter() as inside:
        inside._left = -5.0
        assert inside._was_starved()
        inside._left = -5.0
        assert not inside._was_starved()
        assert inside.starved == 10.0


def test_output_does_not_keep_the_watch_away(sandbox):
    program = "import os, time\nfor _ in range(5000):\n    os.write(1, b'.')\n    time.sleep(0.004)"
    looks = []

    def look() -> None:
        looks.append(len(inside.output))
        if len(looks) == 5:
            raise Ended("memory", "seen")

    with sandbox.interpreter() as inside:
        inside._watch = look
        with pytest.raises(Ended, match="seen"):
            inside.ask({"op": "load", "args": [program, []]})
    assert looks[-1] > looks[0]


def test_a_sandbox_leaves_no_descriptor_no_child_and_no_folder(sandbox, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    before, children = sorted(os.listdir("/proc/self/fd")), _children(os.getpid())
    for program in (
        "x = 1",
        "import os; os._exit(3)",
        "import os; os.kill(os.getpid(), 9)",
        "open('kept', 'w').write('x')",
    ):
        try:
            with sandbox.interpreter() as inside:
                inside.ask({"op": "load", "args": [program, []]})
        except Ended:
            pass
    assert sorted(os.listdir("/proc/self/fd")) == before
    assert os.listdir(tmp_path) == []
    assert _children(os.getpid()) == children


def test_a_program_finds_its_files_at_low_numbers_however_many_its_host_has_open(sandbox):
    program = """
import os
for fd in range(32, 1024):
    try:
        os.fstat(fd)
    except OSError:
        continue
    raise ValueError(fd)
"""
    opened = [os.open(os.devnull, os.O_RDONLY) for _ in range(300)]
    try:
        with sandbox.interpreter() as inside:
            assert "raised" not in inside.ask({"op": "load", "args": [program, []]})
    finally:
        for fd in opened:
            os.close(fd)


def test_a_process_that_closes_its_pipes_is_gone_all_the_same(sandbox):
    with sandbox.interpreter() as inside:
        pid = inside._process.pid
        below = _children(pid)
        assert len(below) == (1 if sandbox.tier.name == "A" else 0)
        with pytest.raises(Ended):
            inside.ask({"op": "load", "args": ["import os, time\nos.closerange(0, 256)\ntime.sleep(100)", []]})
    for gone in (pid, *below):  # no zombie either, whoever would have inherited it
        with pytest.raises(ProcessLookupError):
            os.kill(gone, 0)


def test_a_wall_that_cannot_be_built_is_no_sandbox(monkeypatch):
    monkeypatch.setattr("qualgate.sandbox.tiers.shutil.which", lambda *_, **__: "/bin/false")
    probe.cache_clear()
    try:
        found = probe("A")
        assert found.tier is None
        assert "tier A" in str(found)
        assert "undecided" in str(found)
        assert Sandbox.best(force="A") is None
        with pytest.raises(SandboxFailed):
            Sandbox(tier=Tier(name="A", bwrap="/bin/false")).interpreter()
    finally:
        probe.cache_clear()


def test_a_wall_with_a_hole_is_found_by_the_probe(monkeypatch):
    if probe("B").tier is None:
        pytest.skip("tier B does not hold here")
    everything = replace(tiers.runtime(), readable=("/",), covered=())  # Landlock now shows every file
    monkeypatch.setattr("qualgate.sandbox.tiers.runtime", lambda packages=False: everything)
    probe.cache_clear()
    try:
        found = probe("B")
        assert found.tier is None
        assert "does not hold: read" in str(found)
    finally:
        probe.cache_clear()


def test_an_end_that_queues_for_a_cpu_is_told_as_what_it_was(sandbox, monkeypatch):
    """On a busy machine what a limit killed may be there for seconds after its pipe has closed."""
    from qualgate.sandbox import process

    slow, asked = process._exits, []
    monkeypatch.setattr(
        process, "_exits", lambda pid, within: asked.append(within) or (within > 1 and slow(pid, within))
    )
    monkeypatch.setattr(process, "_exiting", lambda pid: True)
    monkeypatch.setattr(process.Interpreter, "_watch", lambda _: None)  # which may see the CPU time first
    limits = Limits(cpu_seconds=1, wall_seconds=60)
    with pytest.raises(Ended, match="CPU time"), replace(sandbox, limits=limits).interpreter() as inside:
        inside.ask({"op": "load", "args": ["while True: pass", []]})
    assert asked[:2] == [1.0, process._ENDING]
