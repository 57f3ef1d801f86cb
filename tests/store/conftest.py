"""The databases that the contract holds for: a store in a file, and one on a server of the tests' own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from qualgate.store import leases, submissions
from qualgate.store.database import Store, open_store
from tests.postgresql import server
from tests.store.made import make_plan, make_run

JUDGED = make_plan(cases=40)
# On a server the whole contract is a proof; what of it every change is held to is in `test_postgresql`.
DATABASES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.proof))


def new_url(database: str, folder: Path) -> str:
    return f"sqlite:///{folder / 'qualgate.db'}" if database == "sqlite" else server().new_database()


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_url(request.param, tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture(scope="module", params=DATABASES)
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Store, str]]:
    """A store with one complete run, to be read alone."""
    with open_store(new_url(request.param, tmp_path_factory.mktemp("judged"))) as opened:
        yield opened, make_run(opened, JUDGED)


class Clock:
    """The store's, set by the test."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def __call__(self, connection) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch):
    found = Clock()
    monkeypatch.setattr(leases, "clock", found)
    monkeypatch.setattr(submissions, "clock", found)
    return found
