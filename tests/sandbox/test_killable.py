"""Jobs that end on their own, and jobs that have to be ended."""

from __future__ import annotations

import os
import re
import resource
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from qualgate.sandbox import killable
from qualgate.scoring import regexes

LOOP = (regexes._python_findall, r"(a+)+$", "a" * 40 + "!")


def test_a_job_that_never_ends_is_ended_and_the_next_one_is_done():
    start = time.process_time()
    with pytest.raises(killable.Killed, match="more than 1 s of work"):
        killable.run(*LOOP)
    assert time.process_time() - start < 0.5
    assert killable.run(regexes._python_findall, "a+", "a baa") == ["a", "aa"]


def test_the_child_stays_for_the_next_job():
    killable.dismiss()
    assert killable.run(os.getpid) == killable.run(os.getpid) != os.getpid()


def test_jobs_of_two_threads_have_two_children_and_none_is_left():
    killable.dismiss()
    with ThreadPoolExecutor(2) as pool:
        pids = set(pool.map(lambda _: killable.run(_slowly), range(2)))
    assert len(pids) == 2
    killable.dismiss()
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)


def _slowly() -> int:
    """Takes as long as a second job needs to begin."""
    end = time.process_time() + 0.3
    while time.process_time() < end:
        pass
    return os.getpid()


def test_who_was_interrupted_as_it_waited_is_never_given_that_jobs_answer(monkeypatch):
    killable.dismiss()
    busy = killable.run(os.getpid)

    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as ctrl_c:
        ctrl_c.setattr("select.poll", interrupted)
        with pytest.raises(KeyboardInterrupt):
            killable.run(len, "abc")
    assert killable.run(len, "abcd") == 4
    with pytest.raises(ProcessLookupError):
        os.kill(busy, 0)


def test_a_job_is_done_for_a_program_that_has_more_than_a_thousand_files_open():
    killable.dismiss()
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, 2_048), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1_100)]
    try:
        assert killable.run(len, "abc") == 3
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_bounds_are_a_jobs_own():
    with pytest.raises(killable.Killed, match=r"more than 0\.2 s of work") as ended:
        killable.run(*LOOP, within=killable.Bounds(cpu_seconds=0.2))
    assert ended.value.kind == "timeout"
    with pytest.raises(killable.Killed, match="more than 64 MiB") as ended:
        killable.run(_sub, "", "x" * 1_000, "y" * 100_000, within=killable.Bounds(memory_bytes=2**26))
    assert ended.value.kind == "memory"


def test_what_a_killed_child_left_is_taken_away(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(killable.Killed):
        killable.run(_leaves, within=killable.Bounds(cpu_seconds=0.1))
    assert os.listdir(tmp_path) == []


def _sub(pattern: str, replacement: str, text: str) -> str:
    return re.sub(pattern, replacement, text)


def _leaves() -> None:
    tempfile.mkdtemp()
    while True:
        pass


def test_a_job_that_takes_all_memory_is_ended():
    with pytest.raises(killable.Killed, match="memory"):
        killable.run(_sub, "", "x" * 10_000, "y" * 1_000_000)


def test_text_of_every_kind_comes_back_as_it_was():
    for text in ("\u202e\x1b[31m\n\0", "\ud800", "é😀", "a" * 3_000_000):
        assert killable.run(regexes._python_findall, "(?s).+", text) == [text]
