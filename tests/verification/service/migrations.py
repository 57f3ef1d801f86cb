"""Row `migrations`: a store of every released revision is upgraded by a process that is killed at some statement of it,
then upgraded again: every row is what it was, every seal holds, and a store is never in between.

A store of an old revision says what one of today says, as far as it could: rows are copied by the columns that both
have. A seal covers what later columns hold, so the run is written as its era knew to.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any
from unittest.mock import patch

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, Engine, MetaData, Table, create_engine, event, insert, select

from qualgate.bench.shape import told
from qualgate.errors import StoreVersionError
from qualgate.records import Completion, Drift, RunEvidence, Submission
from qualgate.store import answered, database, decisions, queries, rows, runs, submissions
from qualgate.store.database import Store, open_store
from qualgate.store.nights import Night, add_night
from qualgate.store.tables import verdicts
from tests.store.made import make_plan, make_run
from tests.verification.goals import SERVICE
from tests.verification.service.stores import kinds_of_stores

CASES, CASES_QUICK = 2_700, 8  # of each of three sets: 100,000 rows a store with scores and cases
KILLS, KILLS_QUICK = 3, 1  # of each upgrade
REVISIONS = database.REVISIONS[:-1]
REVISIONS_QUICK = (REVISIONS[0], REVISIONS[2], REVISIONS[-1])  # the oldest, the one that rewrites most, the newest
ERAS = ("0001", "0002", "0006")  # of what a unit's seal covers: from the second on its kernel, from the third its batch
RENAMED = {"draft_proposed": "baseline_proposed", "draft_accepted": "baseline_accepted"}  # by 0007
Hashes = dict[tuple[str, tuple[str, ...]], tuple[int, str]]


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """quick: three revisions and few rows, without a verdict."""
    few = f"{len(REVISIONS_QUICK)} revisions and few rows" if quick else None
    rounds = list[dict[str, Any]]()
    with tempfile.TemporaryDirectory() as folder, kinds_of_stores() as kinds:
        if "postgresql" in kinds:
            kinds["postgresql"] = partial(kinds["postgresql"], like=None)
        made = {era: _made(Path(folder), era, CASES_QUICK if quick else CASES) for era in ERAS}
        trials = [(kind, revision) for kind in kinds for revision in (REVISIONS_QUICK if quick else REVISIONS)]
        for kind, revision in told("service", trials, "{0[0]}, {0[1]}".format):
            now = made[max(era for era in ERAS if era <= revision)]
            rounds.append(_trial(kinds[kind](), kind, revision, now, KILLS_QUICK if quick else KILLS))
    measured = {
        "stores": len(rounds),
        **{name: sum(one[name] for one in rounds) for name in ("rows", "killed", "in between", "changed")},
    }
    met = not measured["in between"] + measured["changed"]
    missing = "no PostgreSQL is installed here" if met and len(kinds) < 2 else None
    return rounds, [SERVICE.row("migrations", measured, met=met, unmet_because=missing, few=few)]


def _made(folder: Path, era: str, cases: int) -> str:
    """A store of today that holds what one of that era could."""
    url = f"sqlite:///{folder / f'{era}.db'}"
    plain = rows.unit_row

    def unit_row(completion: Completion, drift: Drift | None, said: Sequence[Any], *later: Any) -> dict[str, Any]:
        known = replace(completion, kernel=None) if era < ERAS[1] else completion
        return plain(known, drift, said, *(later if era >= ERAS[2] else ()))

    with open_store(url) as store, patch.object(answered, "unit_row", unit_row):
        run_id = make_run(store, make_plan(cases=cases))
        with store.read() as connection:
            variant, seal = connection.execute(select(verdicts.c.variant, verdicts.c.sha256)).first() or ("", "")
        decisions.append(store, run_id, variant, "block", name="Zoë 雪", reason="büro", verdict_sha256=seal)
        files = {"/w/x": bytes(range(256)) * 4096}
        handed = Submission(owner="雪", name="gate.yaml", folder="/w", gate_file="", program="1", files=files)
        submissions.submit(store, handed)
        times = {"due_at": "1", "began_at": "2", "finished_at": "3"}
        add_night(store, Night(nightly="n", gate="a", model="", run_id=run_id, repeated=False, exit=0, **times))
    return url


def _trial(url: str, kind: str, revision: str, now: str, kills: int) -> dict[str, Any]:
    """in between: stores of neither revision after a kill, or of the old one and not as before; changed: tables whose
    rows are others after all, seals that do not hold, evidence that says something else."""
    rng = random.Random(f"{kind} {revision}")
    with open_store(now) as store:
        [evidence] = _evidence(store)
    _as_of(url, revision, now)
    before, found = _hashes(url), {"killed": 0, "in between": 0, "changed": 0}
    for number in range(kills):  # the first at most a few statements in, then further
        found["killed"] += _killed(url, rng.randrange(1, 4 * 10**number))
        if _revision(url) == revision:
            found["in between"] += before != _hashes(url)
        else:
            found["in between"] += _revision(url) != database.REVISIONS[-1]
    database.upgrade(url)
    wanted = {table: [_today(name, revision) for name in names] for table, names in before}
    after = _hashes(url, wanted)
    found["changed"] += sum(of != then for of, then in zip(before.values(), after.values(), strict=True))
    try:
        with open_store(url) as store:
            found["changed"] += sum(one != evidence or bool(one.integrity) for one in _evidence(store))
            decisions.check_chain(store)
    except StoreVersionError:
        found["in between"] += 1
    return {"store": kind, "from": revision, "rows": sum(count for count, _ in before.values()), **found}


def _evidence(store: Store) -> list[RunEvidence]:
    return [runs.evidence(store, line.run_id) for line in queries.list_runs(store)]


def _as_of(url: str, revision: str, now: str) -> None:
    """An old store at `url` that says what the one at `now` does."""
    config = Config()
    config.set_main_option("script_location", str(database.migrations_folder()))
    with _opened(url) as store, store.write() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
    tables = _tables(url)
    with _opened(now) as store, store.read() as source, _opened(url) as old, old.write() as target:
        today = {table.name: table for table in _tables(now)}
        for table in tables:
            there = today[table.name]
            columns = {one.name: there.c[_today(one.name, revision)] for one in table.c}
            read = source.execute(select(*(column.label(name) for name, column in columns.items())))
            while some := read.mappings().fetchmany(5_000):
                target.execute(insert(table), [dict(row) for row in some])


def _today(column: str, revision: str) -> str:
    return RENAMED.get(column, column) if revision < "0007" else column


@contextmanager
def _opened(url: str) -> Iterator[Store]:
    """Whatever its revision."""
    with database._unchecked(url) as store:
        yield store


def _tables(url: str) -> Sequence[Table]:
    """All but alembic's, those that others refer to first. By an engine of its own: ours cannot ask PostgreSQL."""
    found, plain = MetaData(), create_engine(url.replace("postgresql:", "postgresql+psycopg:"))
    found.reflect(plain)
    plain.dispose()
    return [table for table in found.sorted_tables if table.name != "alembic_version"]


def _revision(url: str) -> str | None:
    with _opened(url) as store:
        return database._revision(store)


def _hashes(url: str, wanted: Mapping[str, Sequence[str]] | None = None) -> Hashes:
    """Table and columns → how many rows, and a hash of them all. wanted: these alone; None: all, but for alembic's."""
    there = {table.name: table for table in _tables(url)}
    with _opened(url) as store, store.read() as connection:
        wanted = wanted or {name: table.c.keys() for name, table in there.items()}
        return {(name, tuple(of)): _hash(connection, there[name], of) for name, of in wanted.items()}


def _hash(connection: Connection, table: Table, names: Sequence[str]) -> tuple[int, str]:
    read = connection.execute(select(*(table.c[name] for name in names)))
    each = sorted(sha256(repr(tuple(row)).encode("utf-8", "surrogatepass")).digest() for row in read)
    return len(each), sha256(b"".join(each)).hexdigest()


def _killed(url: str, statement: int) -> bool:
    """An upgrade by a process of its own that kills itself before so many statements are done; whether it did."""
    process = multiprocessing.get_context("fork").Process(target=_upgrade, args=(url, statement))
    process.start()
    process.join()
    assert process.exitcode in (0, -signal.SIGKILL), f"the upgrade ended with {process.exitcode}"
    return process.exitcode != 0


def _upgrade(url: str, statement: int) -> None:
    left = [statement]

    def count(*_: Any) -> None:
        left[0] -= 1
        if left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    event.listen(Engine, "before_cursor_execute", count)
    database.upgrade(url)
