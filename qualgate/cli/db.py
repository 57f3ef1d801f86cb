"""The store's schema, who may do what in it, its move to another database, and its archive: `qualgate db`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer

from qualgate.cli.stdout import say
from qualgate.errors import Exit, IntegrityError

db_app = typer.Typer(help="The store: its schema, its roles, its move, its archive.", no_args_is_help=True)
StoreAt = Annotated[str, typer.Option("--store", help="the store's URL")]
Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="the archive: a folder in it for each run")]
Runs = Annotated[list[str] | None, typer.Option("--run", metavar="ID", help="this run; may be given again")]
OlderThan = Annotated[float, typer.Option("--older-than", metavar="DAYS", min=0, help="runs that ended so long ago")]
Keep = Annotated[int, typer.Option("--keep", min=1, help="of each gate file's runs, leave the last so many")]


@db_app.command("upgrade")
def db_upgrade(store: StoreAt = "sqlite:///qualgate.db") -> None:
    """Bring a store's schema to this version: a file after a backup copy, a database in one transaction."""
    from qualgate.store.database import upgrade

    say(upgrade(store))


@db_app.command("copy")
def db_copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="the store's URL")],
    target: Annotated[str, typer.Argument(metavar="TO", help="the URL of one that is new or empty")],
) -> None:
    """Move a store to another database or file, whole or not at all, every row and every seal compared."""
    from qualgate.formatting import counted
    from qualgate.report.screen import fit
    from qualgate.store.copy import copy_store

    done = copy_store(source, target)
    say(fit(f"{target}: {counted(done.rows, 'row')} of {counted(done.runs, 'run')} copied, each compared, seals too."))
    for line in done.broken:
        say(fit(f"as in the store it came from: {line}"))
    if done.broken:
        raise typer.Exit(Exit.INTEGRITY)


@db_app.command("roles")
def db_roles(
    store: Annotated[str | None, typer.Option("--store", help="the store's URL, with --apply")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="run it, as the store's owner")] = False,
    prefix: Annotated[str, typer.Option("--prefix", help="what the roles' names begin with")] = "qualgate",
) -> None:
    """Print SQL that makes a PostgreSQL store's reader, writer and approver, none of whom can rewrite its history."""
    from qualgate.store.roles import apply_roles, roles_sql

    if not apply:
        say("\n".join(roles_sql(prefix)))
        return
    say("\n".join(f"{role}: {what}" for role, what in apply_roles(store or "", prefix)))


@db_app.command("archive")
def db_archive(
    folder: Folder,
    runs: Runs = None,
    older_than: OlderThan = 30,
    keep: Keep = 3,
    store: StoreAt = "sqlite:///qualgate.db",
) -> None:
    """Write old runs to Parquet files (which DuckDB reads), each compared with the store. Nothing leaves the store."""
    from qualgate.store.archive import archive_run, to_archive
    from qualgate.store.database import open_store

    with open_store(store, create=False) as opened:

        def act(run_id: str) -> str:
            made = archive_run(opened, run_id, folder)
            return f"archived in {made.place}, sha256 of its manifest {made.manifest_sha256}"

        chosen = runs or to_archive(opened, _days_ago(older_than), keep)
        damaged = _each(chosen, act)
    if not chosen:
        say("No run to archive: all are younger, stay, or are archived already.")
    _end(damaged)


@db_app.command("prune")
def db_prune(
    folder: Folder,
    runs: Runs = None,
    older_than: OlderThan = 30,
    keep: Keep = 3,
    store: StoreAt = "sqlite:///qualgate.db",
) -> None:
    """Take the answers and scores of archived runs out of the store; verdicts, decisions and seals stay."""
    from qualgate.store.archive import prune_run, to_prune
    from qualgate.store.database import open_store

    with open_store(store, create=False) as opened:

        def act(run_id: str) -> str:
            prune_run(opened, run_id, folder)
            return f"its answers and scores are in {folder / run_id}, until `qualgate db restore {folder}`"

        chosen = runs or to_prune(opened, folder, _days_ago(older_than), keep)
        damaged = _each(chosen, act)
        if len(chosen) > damaged:
            say(opened.shrink())
        elif not chosen:
            say("No run to prune: all that the folder holds are younger, stay, or are pruned already.")
    _end(damaged)


@db_app.command("restore")
def db_restore(folder: Folder, runs: Runs = None, store: StoreAt = "sqlite:///qualgate.db") -> None:
    """Put the answers and scores of pruned runs back from their archive, to the byte, every seal recomputed."""
    from qualgate.store.archive import restore_run, to_restore
    from qualgate.store.database import open_store

    with open_store(store, create=False) as opened:

        def act(run_id: str) -> str:
            restore_run(opened, run_id, folder)
            return "is whole again, its seals hold"

        chosen = runs or to_restore(opened, folder)
        damaged = _each(chosen, act)
    if not chosen:
        say("No run to restore: none that the folder holds is pruned.")
    _end(damaged)


def _each(run_ids: Sequence[str], act: Callable[[str], str]) -> int:
    """A line on each; how many are damaged. These are named, and keep none of the others waiting for ever."""
    from qualgate.escaping import visible_line

    damaged = 0
    for run_id in run_ids:
        try:
            say(f"{run_id}: {act(run_id)}")
        except IntegrityError as error:
            damaged += 1
            say(visible_line(str(error)))
    return damaged


def _end(damaged: int) -> None:
    if damaged:
        raise typer.Exit(Exit.INTEGRITY)


def _days_ago(days: float) -> str:
    """UTC, as the store writes times."""
    return (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="microseconds").replace("+00:00", "Z")
