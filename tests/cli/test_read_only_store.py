"""A store that may only be read: what reads it works, and what stores something says so."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from qualgate.errors import Exit, InfrastructureError
from qualgate.records import Policy
from qualgate.store.database import open_store
from qualgate.store.roles import apply_roles
from tests.command_line import qualgate
from tests.postgresql import server
from tests.store.made import RULES, make_plan, make_run

WRONG = {"int8": 0.0, "int4-g32": 0.5}
PLAN = make_plan(cases=40, wrong=WRONG, policy=Policy(rules=RULES[:2]))
NOBODY = 65534


@contextmanager
def unprivileged() -> Iterator[None]:
    """As somebody whom permissions hold for: root passes by them."""
    user = os.geteuid()
    if not user:
        os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(user)


@contextmanager
def read_only(path: Path) -> Iterator[None]:
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        with unprivileged():
            yield
    finally:
        path.parent.chmod(0o755)
        path.chmod(0o644)


@pytest.fixture
def file() -> Iterator[Path]:
    """In a folder that others may enter, which pytest's own forbid."""
    with TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        folder = Path(place) / "media #1"
        folder.mkdir()
        with open_store(f"sqlite:///{folder / 'q.db'}") as store:
            make_run(store, PLAN, WRONG)
        yield folder / "q.db"


def asked(*words: str) -> tuple[int, str]:
    done = qualgate(*words, COLUMNS="100")
    return done.returncode, done.stdout + " ".join(done.stderr.split())


def reads(url: str) -> list[tuple[str, ...]]:
    _, listed = asked("runs", "--store", url)
    run = next(word for word in listed.split() if word.startswith("20"))
    return [("runs",), ("report", "--json"), ("answers", run), ("flips", run, "int8"), ("gate", "--no-write", "--json")]


def answers(url: str) -> list[tuple[int, str]]:
    return [asked(*words, "--store", url) for words in reads(url)]


def test_a_file_that_may_only_be_read_is_read_and_a_write_names_what_reads_it(file):
    url = f"sqlite:///{file}"
    before, held = answers(url), sorted(file.parent.iterdir())
    assert [code for code, _ in before] == [0, 0, 0, 0, Exit.UNDECIDED]
    with read_only(file):
        assert answers(url) == before
        for words in (("gate",), ("rescore",)):
            code, told = asked(*words, "--store", url)
            assert code == Exit.USAGE, told
            assert "is read-only for you" in told
            assert "gate --no-write" in told
    assert sorted(file.parent.iterdir()) == held


def test_what_is_decided_without_a_write_is_what_would_be_stored_and_is_not(file):
    url = f"sqlite:///{file}"
    stored = asked("report", "--json", "--store", url)
    decided = asked("gate", "--no-write", "--json", "--store", url)
    assert asked("report", "--json", "--store", url) == stored
    assert asked("gate", "--json", "--store", url) == decided
    assert asked("report", "--json", "--store", url)[1] == decided[1] != stored[1]


def test_a_log_that_cannot_be_read_in_hides_nothing(file):
    url = f"sqlite:///{file}"
    with sqlite3.connect(file) as writer:
        writer.execute("CREATE TABLE other (a)")
        writer.commit()
        with read_only(file):
            assert asked("runs", "--store", url)[0] == 0  # by the log, which its writer has open
        copies = {
            name: shutil.copy(file.with_name(name), file.with_name(f"{name}.copy")) for name in ("q.db", "q.db-wal")
        }
    writer.close()
    for name, copy in copies.items():
        shutil.move(copy, file.with_name(name))
    with read_only(file):
        code, told = asked("runs", "--store", url)
    assert code == Exit.USAGE
    assert "its newest rows are in q.db-wal" in told


def test_a_file_that_changes_while_it_is_read_as_one_that_does_not_is_refused(file):
    with read_only(file):
        store = open_store(f"sqlite:///{file}", create=False)
    reading = store.read()
    reading.__enter__().exec_driver_sql("SELECT count(*) FROM runs")
    os.utime(file)
    with pytest.raises(InfrastructureError, match="wrote to it while it was read"):
        reading.__exit__(None, None, None)
    store.close()


@pytest.mark.proof
def test_a_role_that_may_only_read_reads_and_a_write_names_what_reads_it():
    pg = server()
    owned = pg.new_database()
    with open_store(owned) as store:
        make_run(store, PLAN, WRONG)
    apply_roles(owned)
    pg.execute("CREATE ROLE looker LOGIN IN ROLE qualgate_reader")
    url = owned.replace("postgres@", "looker@")
    # They name a command with the store's address, at which lines may break.
    read, owners = ([(code, "".join(told.split())) for code, told in answers(each)] for each in (url, owned))
    assert [(code, told.replace("looker@", "postgres@")) for code, told in read] == owners
    code, told = asked("gate", "--store", url)
    assert code == Exit.USAGE, told
    assert "gate --no-write" in told
