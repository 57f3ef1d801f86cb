"""Who writes to a file next: in the order in which they came, never for longer than they are ready to wait."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from time import monotonic

import pytest
from sqlalchemy import text

from qualgate.store import turns
from qualgate.store.database import open_store
from qualgate.store.turns import turn

LONG, LOCKS = 60.0, Path("/proc/locks")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "store.db"


def standing(file: Path) -> int:
    """How many the system knows to wait in the file's line."""
    inode = f":{file.with_name('store.db-turn').stat().st_ino} "
    return sum("->" in line and inode in line for line in LOCKS.read_text().splitlines())


def until(true) -> None:
    last = monotonic() + LONG
    while not true():
        assert monotonic() < last


@pytest.mark.skipif(not LOCKS.exists(), reason="this system does not say who waits")
def test_who_came_first_writes_first(file):
    wrote = list[int]()

    def write(number: int) -> None:
        with turn(file, LONG):
            wrote.append(number)

    with ThreadPoolExecutor(16) as pool, turn(file, LONG):
        for number in range(16):
            pool.submit(write, number)
            until(lambda: standing(file) == number + 1)  # noqa: B023
        assert wrote == []
    assert wrote == list(range(16))


def test_a_turn_that_does_not_come_is_not_waited_for_for_ever_and_not_kept_when_it_comes_late(file):
    held, over = Event(), Event()

    def stopped() -> None:
        with turn(file, LONG):
            held.set()
            over.wait(LONG)

    with ThreadPoolExecutor(1) as pool:
        pool.submit(stopped)
        held.wait(LONG)
        with turn(file, 0.01):
            pass
        for _ in range(3):  # nor does it stand in a line that does not move
            with turn(file, LONG):
                pass
        assert not LOCKS.exists() or standing(file) == 1
        over.set()
    until(lambda: not turns._LATE[file].is_alive())
    assert at_once(file)


def at_once(file: Path) -> bool:
    began = monotonic()
    with turn(file, 1.0):
        return monotonic() - began < 1.0


def test_a_turn_ends_with_an_error_in_it(file):
    with pytest.raises(ZeroDivisionError), turn(file, LONG):
        _ = 1 / 0
    assert at_once(file)


def test_a_turn_ends_though_a_forked_child_has_its_file_open(file):
    with turn(file, LONG):
        read, write = os.pipe()
        if not (child := os.fork()):
            os.close(write)
            os.read(read, 1)  # until the parent is done
            os._exit(0)
    assert at_once(file)
    os.close(write)
    os.close(read)
    os.waitpid(child, 0)


def test_where_nobody_can_stand_in_line_writing_goes_on(file, monkeypatch):
    with turn(file / "no folder" / "store.db", LONG):
        pass
    monkeypatch.setattr(turns, "fcntl", None)
    with turn(file, LONG), turn(file, LONG):
        pass


def test_a_write_to_a_store_waits_for_its_turn_and_a_look_does_not(file):
    with open_store(f"sqlite:///{file}") as store, ThreadPoolExecutor(1) as pool:

        def write() -> None:
            with store.write() as connection:
                connection.execute(text("DELETE FROM runs"))

        with turn(file, LONG):
            waiting = pool.submit(write)
            if LOCKS.exists():
                until(lambda: standing(file) == 1)
            with store.read() as connection:
                assert connection.execute(text("SELECT count(*) FROM runs")).scalar_one() == 0
            assert not waiting.done()
        waiting.result(LONG)
