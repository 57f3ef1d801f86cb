"""Runs written to an archive of Parquet files, let go by the store, and put back as they were.

An archive is a folder with a folder a run: a file a table, whole rows, and `manifest.json` with the hash of each file.
The manifest's own hash is in the store (`archived`), so nothing of an archive is read that is not what was written.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from hashlib import file_digest, sha256
from itertools import zip_longest
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Select, Table, bindparam, delete, func, select, update

from qualgate.errors import InfrastructureError, IntegrityError, UsageError
from qualgate.store import archived, bulk, parquet, tables
from qualgate.store.archived import Archived
from qualgate.store.database import REVISIONS, Store
from qualgate.store.evidence import check_evidence, no_such_run
from qualgate.store.queries import retention

Row = TypeVar("Row")
MANIFEST = "manifest.json"
OF_A_RUN = (
    tables.runs, tables.evalsets, tables.cases, tables.arms, tables.units, tables.scores, tables.draft_steps,
    tables.scorings, tables.stoppings, tables.judgements, tables.verdicts, tables.decisions,
)  # fmt: skip
# What is let go: of a unit what was said and measured token by token, and every row of the other two.
EMPTIED = ("text", "token_ids", "logprobs", "margins", "kl", "kl_upper")
REMOVED = (tables.scores, tables.draft_steps)
TURN = 200  # rows that go or come back in one transaction: who waits for a file waits for some 20 ms


def archive_run(store: Store, run_id: str, folder: Path) -> Archived:
    """Write a complete run to `folder`; each file is read back and compared with the store before it counts.

    UsageError for a run that is under way, or where `folder` holds the run with other rows: a store may need those.
    IntegrityError for a run whose evidence is not what was recorded, EvidenceArchived for one that was pruned.
    """
    check_evidence(store, run_id)
    place = folder.absolute() / run_id
    part = place.with_name(f".{run_id}.part")  # what an archiving that was killed left is begun anew
    try:
        shutil.rmtree(part, ignore_errors=True)
        part.mkdir(parents=True)
        with store.read() as connection:
            _check_complete(connection, run_id)
            archived.refuse_pruned(connection, run_id)  # some of it may have gone since it was checked
            written = {table.name: _write(connection, run_id, table, part) for table in OF_A_RUN}
        head = {"format": 1, "run_id": run_id, "revision": REVISIONS[-1], "tables": written}
        text = json.dumps(head, indent=1, sort_keys=True) + "\n"
        _on_disk(part / MANIFEST, text.encode("ascii"))
        sealed = sha256(text.encode("ascii")).hexdigest()
        _put(part, place, Archived(run_id=run_id, number=0, event="archived", place=str(place), manifest_sha256=sealed))
    except OSError as error:
        raise InfrastructureError(
            f"{place}: {error.strerror or error}. Nothing was archived, and nothing let go."
        ) from None
    finally:
        shutil.rmtree(part, ignore_errors=True)
    with store.write() as connection:
        archived.refuse_pruned(connection, run_id)
        archived.add(connection, run_id, "archived", str(place), sealed)
        return _known(connection, run_id)


def prune_run(store: Store, run_id: str, folder: Path) -> None:
    """Take a run's answers and scores out of the store, once its archive is found whole and the same as the store.

    Its list, seals, verdicts, decisions, judges' replies and scorings' seals stay. UsageError where it is not archived
    in `folder`, was scored again since, or a verdict in force rests on it. One that was stopped on the way goes on.
    """
    place = folder.absolute() / run_id
    with store.read() as connection:
        known = _known(connection, run_id)
        if known.event == "pruned":
            raise UsageError(f"run {run_id} was pruned already: it is in {known}.")
        manifest, whole = _manifest(place, known), known.event not in archived.AWAY
        if whole:  # else it was compared before the first of it went
            _check_free(connection, run_id)
            for table in (tables.units, *REMOVED):
                _compare(connection, run_id, table, place)
        units = tables.units.c
        ids = connection.scalars(select(units.unit_id).where(units.run_id == run_id).order_by(units.unit_id)).all()
    with _turn(store, known) as connection:
        again = select(func.count()).select_from(tables.scorings).where(tables.scorings.c.run_id == run_id)
        if connection.scalar(again) != manifest["scorings"]["rows"]:
            raise UsageError(f"run {run_id} was scored again meanwhile. Archive it again, then prune it.")
        if whole:
            _check_free(connection, run_id)
        ours = archived.add(connection, run_id, "pruning", str(place), known.manifest_sha256)
        _let_go(connection, ids[:TURN])  # who may not is refused before the run counts as pruned
    for some in _some(ids[TURN:]):
        with _turn(store, ours) as connection:
            _let_go(connection, some)
    with _turn(store, ours) as connection:
        archived.add(connection, run_id, "pruned", str(place), known.manifest_sha256)


def restore_run(store: Store, run_id: str, folder: Path) -> None:
    """Put back what `prune_run` took out, to the byte; then every seal is recomputed. UsageError for a run that was not
    pruned; IntegrityError where its archive is not the one that was written. Until all is back nothing of it counts,
    and one that was stopped on the way goes on."""
    place, units = folder.absolute() / run_id, tables.units
    with store.read() as connection:
        known = _known(connection, run_id)
        if known.event not in archived.AWAY:
            raise UsageError(f"run {run_id} was not pruned: its answers and scores are in this store.")
        _manifest(place, known)
    with _turn(store, known) as connection:
        ours = archived.add(connection, run_id, "restoring", str(place), known.manifest_sha256)
    back = update(units).where(units.c.unit_id == bindparam("this_unit"), units.c.run_id == run_id)
    back = back.values({name: bindparam(f"was_{name}") for name in EMPTIED})
    for some in _kept(place, units):
        rows = [dict(zip(units.c.keys(), row, strict=True)) for row in some]
        named = [{f"was_{name}": row[name] for name in EMPTIED} | {"this_unit": row["unit_id"]} for row in rows]
        with _turn(store, ours) as connection:
            connection.execute(back, named)
    for table in REMOVED:
        for some in _kept(place, table):
            with _turn(store, ours) as connection:
                bulk.put(connection, table, table.c.values(), _missing(connection, table, some))
    with store.read() as connection:
        _check_ours(connection, ours)
        for table in (units, *REMOVED):
            _compare(connection, run_id, table, place)
    with _turn(store, ours) as connection:
        archived.add(connection, run_id, "restored", str(place), known.manifest_sha256)
    check_evidence(store, run_id)


def _let_go(connection: Connection, ids: Sequence[int]) -> None:
    for table in REMOVED:
        connection.execute(delete(table).where(table.c.unit_id.in_(ids)))
    emptied = update(tables.units).where(tables.units.c.unit_id.in_(ids))
    connection.execute(emptied.values(dict.fromkeys(EMPTIED)))


@contextmanager
def _turn(store: Store, last: Archived) -> Iterator[Connection]:
    """A short transaction, in which this is the last event of the run: who records the next one takes over, and the
    other one ends."""
    with store.write(last.run_id) as connection:
        _check_ours(connection, last)
        yield connection


def _check_ours(connection: Connection, last: Archived) -> None:
    if _known(connection, last.run_id) != last:
        raise UsageError(
            f"run {last.run_id} was archived, pruned or restored by another process meanwhile. See what came of it, "
            "then do this again."
        )


def _put(part: Path, place: Path, written: Archived) -> None:
    """Where the same lies whole already, it stays: what a store may need is not taken away before its like is there."""
    if place.exists():
        if sha256((place / MANIFEST).read_bytes()).hexdigest() != written.manifest_sha256:
            raise UsageError(
                f"{place} holds the run with other rows, as it was before it was scored again. Give another folder."
            )
        try:
            _manifest(place, written)
        except (IntegrityError, InfrastructureError):
            shutil.rmtree(place)
        else:
            return
    part.replace(place)


def to_archive(store: Store, before: str, keep: int) -> list[str]:
    """Runs that ended before this time (UTC text), that are in no archive yet, and whose evidence may go."""
    with store.read() as connection:
        stays = retention.in_force(connection, keep)
        old = (run_id for run_id in retention.finished_before(connection, before) if run_id not in stays)
        return [
            run_id
            for run_id in old
            if (last := archived.newest(connection, run_id)) is None or last.event == "restored"
        ]


def to_prune(store: Store, folder: Path, before: str, keep: int) -> list[str]:
    """Runs that `folder` holds, that ended before this time, that are still in the store, and whose evidence may go;
    and those of which some went before it was stopped."""
    there = set(runs_in(folder))
    with store.read() as connection:
        begun = archived.runs_at(connection, ("pruning",))
        stays = retention.in_force(connection, keep).keys() | archived.pruned_runs(connection)
        old = (run_id for run_id in retention.finished_before(connection, before) if run_id not in stays)
        return [run_id for run_id in (*sorted(begun), *old) if run_id in there]


def to_restore(store: Store, folder: Path) -> list[str]:
    """Runs that `folder` holds and that were pruned."""
    there = runs_in(folder)
    with store.read() as connection:
        away = archived.pruned_runs(connection)
    return [run_id for run_id in there if run_id in away]


def runs_in(folder: Path) -> list[str]:
    """Ids of the runs that an archive holds. UsageError where there is none."""
    found = sorted(file.parent.name for file in folder.glob(f"*/{MANIFEST}") if not file.parent.name.startswith("."))
    if not found:
        raise UsageError(f"{folder} holds no archived run. `qualgate db archive {folder}` makes one; check the path.")
    return found


# ------------------------------------------------------------------------------------------------------------ checks


def _check_complete(connection: Connection, run_id: str) -> None:
    status = connection.scalar(select(tables.runs.c.status).where(tables.runs.c.run_id == run_id))
    if status != "complete":
        raise UsageError(f"run {run_id} is {status}, and may still go on: only a complete run is archived.")


def _check_free(connection: Connection, run_id: str) -> None:
    if (why := retention.in_force(connection, 1).get(run_id)) is not None:
        raise UsageError(f"run {run_id} is {why}: its evidence stays in the store.")


def _known(connection: Connection, run_id: str) -> Archived:
    if connection.scalar(select(tables.runs.c.run_id).where(tables.runs.c.run_id == run_id)) is None:
        raise no_such_run(connection, run_id)
    if (found := archived.newest(connection, run_id)) is None:
        raise UsageError(
            f"run {run_id} was not archived from this store. Run: qualgate db archive FOLDER --run {run_id}"
        )
    return found


def _manifest(place: Path, known: Archived) -> dict[str, Any]:
    """Tables of an archived run → rows and hash, once every file has the hash that the store, or the manifest that the
    store vouches for, says it has."""
    other = f"{place} is not the archive that was written of run {known.run_id}"
    try:
        text = (place / MANIFEST).read_bytes()
        if sha256(text).hexdigest() != known.manifest_sha256:
            raise IntegrityError(f"{other}: {MANIFEST} is another. Nothing was changed; find {known}.")
        tables_: dict[str, Any] = json.loads(text)["tables"]
        for name, said in tables_.items():
            with (place / f"{name}.parquet").open("rb") as file:
                if file_digest(file, "sha256").hexdigest() != said["sha256"]:
                    raise IntegrityError(f"{other}: {name}.parquet was changed. Nothing was changed in the store.")
    except OSError as error:
        raise InfrastructureError(
            f"{error.filename or place}: {error.strerror or error}. "
            f"Run {known.run_id} is in {known}; give the folder that holds it."
        ) from None
    return tables_


# -------------------------------------------------------------------------------------------------------------- rows


def _write(connection: Connection, run_id: str, table: Table, folder: Path) -> dict[str, Any]:
    path = _file(folder, table)
    count = parquet.write(path, table, _batches(connection, run_id, table))
    _compare(connection, run_id, table, folder)
    with path.open("rb") as file:
        os.fsync(file.fileno())
        return {"rows": count, "sha256": file_digest(file, "sha256").hexdigest()}


def _compare(connection: Connection, run_id: str, table: Table, folder: Path) -> None:
    """Raise IntegrityError unless the archive has the store's rows, each to the byte."""
    held = (row for batch in _batches(connection, run_id, table) for row in batch)
    kept = (row for batch in parquet.read(_file(folder, table), table) for row in batch)
    for one, other in zip_longest(held, kept):
        if one is None or other is None or tuple(one) != other:
            raise IntegrityError(
                f"{_file(folder, table)}: {table.name} of run {run_id} are not as in the store. Archive it again."
            )


def _kept(folder: Path, table: Table) -> Iterator[Sequence[tuple[Any, ...]]]:
    for batch in parquet.read(_file(folder, table), table):
        yield from _some(batch)


def _some(rows: Sequence[Row]) -> Iterator[Sequence[Row]]:
    return (rows[start : start + TURN] for start in range(0, len(rows), TURN))


def _missing(connection: Connection, table: Table, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Those that are not there: of a run that was put back, or let go, in part some are."""
    key = [column.name for column in table.primary_key]
    places = [table.c.keys().index(name) for name in key]
    ids = {row[table.c.keys().index("unit_id")] for row in rows}
    there = set(bulk.pick(connection, table.c.unit_id, [table.c[name] for name in key], ids, "TRUE"))
    return [row for row in rows if tuple(row[place] for place in places) not in there]


def _batches(connection: Connection, run_id: str, table: Table) -> Iterator[Any]:
    chosen = _of_run(table, run_id).order_by(*table.primary_key)
    return connection.execute(chosen, execution_options={"yield_per": parquet.ROWS}).partitions()


def _of_run(table: Table, run_id: str) -> Select[Any]:
    if "run_id" in table.c:
        return select(table).where(table.c.run_id == run_id)
    key = "case_hash" if table is tables.cases else "unit_id"
    return select(table).where(table.c[key].in_(select(tables.units.c[key]).where(tables.units.c.run_id == run_id)))


def _file(folder: Path, table: Table) -> Path:
    return folder / f"{table.name}.parquet"


def _on_disk(path: Path, content: bytes) -> None:
    with path.open("wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
