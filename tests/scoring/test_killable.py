"""Jobs that end on their own, and jobs that have to be ended."""

from __future__ import annotations

import os
import time

import pytest

from qualgate.scoring import killable, regexes

LOOP = (regexes._python_findall, r"(a+)+$", "a" * 40 + "!")


def test_a_job_that_never_ends_is_ended_and_the_next_one_is_done():
    start = time.process_time()
    with pytest.raises(killable.Killed, match="more than 1 s of work"):
        killable.run(*LOOP)
    assert time.process_time() - start < 0.5
    assert killable.run(regexes._python_findall, "a+", "a baa") == ["a", "aa"]


def test_the_child_stays_for_the_next_job():
    killable.run(regexes._python_findall, "a", "a")
    child = killable._child
    killable.run(regexes._python_findall, "a", "a")
    assert killable._child is child
    assert child is not None
    assert child.process.pid != os.getpid()


def test_a_job_that_takes_all_memory_is_ended():
    with pytest.raises(killable.Killed, match="memory"):
        killable.run(regexes._python_sub, "", "x" * 10_000, "y" * 1_000_000)


def test_text_of_every_kind_comes_back_as_it_was():
    for text in ("\u202e\x1b[31m\n\0", "\ud800", "é😀", "a" * 3_000_000):
        assert killable.run(regexes._python_findall, "(?s).+", text) == [text]
