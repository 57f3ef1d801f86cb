"""The databases that the contract (README.md beside this) holds for: a file, and a server of the tests' own."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from qualgate.records import Judgement
from qualgate.store import decisions, judgements, postgresql, queries, runs
from qualgate.store.address import file_of
from qualgate.store.database import Store, open_store
from tests.postgresql import Server, server
from tests.store.made import make_plan, make_results, make_run

JUDGED = make_plan(cases=40)
SMALL = make_plan(cases=4, job_rows=8)
# On a server the whole contract is a proof; what of it every change is held to is in `test_database`.
DATABASES = ("sqlite", pytest.param("postgresql", marks=pytest.mark.proof))
Recorded = tuple[Store, str]  # a store with a complete run, and that run's id


@cache
def _head() -> Path:
    """An empty store of the newest schema: to copy it is quicker than to migrate for every test."""
    folder = Path(tempfile.mkdtemp(prefix="qualgate-head-"))
    open_store(f"sqlite:///{folder / 'head.db'}").close()
    return folder / "head.db"


def copy_of(url: str, folder: Path) -> str:
    """Copy a store that nobody has open; returns the copy's address."""
    if (path := file_of(url)) is None:
        return server().new_database(url.partition("?")[0].rpartition("/")[2])
    return f"sqlite:///{shutil.copyfile(path, folder / 'copy.db')}"


def new_url(database: str, folder: Path) -> str:
    if database == "postgresql":
        return server().new_database()
    return f"sqlite:///{shutil.copyfile(_head(), folder / 'qualgate.db')}"


@pytest.fixture(params=DATABASES)
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_url(request.param, tmp_path)


@pytest.fixture
def file(tmp_path: Path) -> str:
    """The address of an empty store in a file."""
    return new_url("sqlite", tmp_path)


@pytest.fixture
def store(url: str) -> Iterator[Store]:
    with open_store(url) as opened:
        yield opened


@pytest.fixture(scope="module", params=DATABASES)
def judged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Recorded]:
    """A store with one complete run, to be read alone."""
    with open_store(new_url(request.param, tmp_path_factory.mktemp("judged"))) as opened:
        yield opened, make_run(opened, JUDGED)


@pytest.fixture(scope="module", params=DATABASES)
def _small(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    url = new_url(request.param, tmp_path_factory.mktemp("small"))
    with open_store(url) as opened:
        return url, make_run(opened, SMALL)


@pytest.fixture
def recorded(_small: tuple[str, str], tmp_path: Path) -> Iterator[Recorded]:
    """A store of the test's own with one complete run of `SMALL`."""
    with open_store(copy_of(_small[0], tmp_path)) as opened:
        yield opened, _small[1]


HOSTILE = (
    "lone \ud800, NUL \0, its stand-in \1 \1\1 \1\2, bidi \u202e, 漢字 🙂, a'\"; drop table runs; --\r\n\x7f\uffff"
)


def _fill(url: str) -> str:
    """Two runs, one of hostile texts, with a decision and a judge's reply; the first one's id."""
    with open_store(url) as store:
        run_id = make_run(store, make_plan(cases=6, wrong={"int8": 0.0, "int2-g32": 0.3}))
        odd = make_plan(cases=2, wrong={"int8": 0.0}, seed=5)
        other = runs.begin(store, odd).run_id
        for result, scored in make_results(odd):
            said = tuple(replace(one, text=HOSTILE) for one in result.completions)
            marked = {key: tuple(replace(one, reason=HOSTILE, extracted=HOSTILE) for one in each)
                      for key, each in scored.items()}  # fmt: skip
            runs.record(store, other, replace(result, completions=said), marked)
        seen = queries.run_summary(store, run_id).verdict("int8").sha256
        decisions.append(
            store, run_id, "int8", decisions.Said(action="block", name=HOSTILE, reason=HOSTILE), decisions.Seen(seen)
        )
        reply = Judgement(variant="int8", evalset="s", case_id="c", repeat=0, swapped=False, asked="f" * 64,
                          reply=HOSTILE, error="", served="m")  # fmt: skip
        judgements.add(store, other, "judge/1", [reply])
    return run_id


@pytest.fixture(scope="module")
def full_store(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    url = new_url("sqlite", tmp_path_factory.mktemp("full"))
    return url, _fill(url)


@pytest.fixture
def filled(full_store: tuple[str, str], tmp_path: Path) -> tuple[str, str]:
    """A file with two runs, one of hostile texts, a decision and a judge's reply; and the first run's id."""
    return copy_of(full_store[0], tmp_path), full_store[1]


@pytest.fixture(scope="module")
def pg() -> Server:
    return server()


@pytest.fixture
def on_server(pg: Server) -> Iterator[Store]:
    """An empty store on a server."""
    with open_store(pg.new_database()) as opened:
        yield opened


@pytest.fixture
def no_pause(monkeypatch):
    """A lost server is tried again at once."""
    monkeypatch.setattr(postgresql.persistently, "__defaults__", (lambda seconds: None,))
