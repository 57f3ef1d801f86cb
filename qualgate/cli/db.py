"""`qualgate db`: the store's schema, roles and copy, and the removal of old answers."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Annotated

import typer

from qualgate.cli.stdout import say
from qualgate.errors import Exit, IntegrityError, UsageError

if TYPE_CHECKING:
    from qualgate.store.database import Store
    from qualgate.store.prune import Amount

db_app = typer.Typer(help="The store: its schema, its roles, its copy, removal of old answers.", no_args_is_help=True)
StoreAt = Annotated[str, typer.Option("--store", help="the store's URL")]


@db_app.command("upgrade")
def db_upgrade(store: StoreAt = "sqlite:///qualgate.db") -> None:
    """Bring a store's schema to this version: a file after a backup copy, a database in one transaction."""
    from qualgate.store.database import upgrade

    say(upgrade(store))


@db_app.command("copy")
def db_copy(
    source: Annotated[str, typer.Argument(metavar="FROM", help="the store's URL")],
    target: Annotated[str, typer.Argument(metavar="TO", help="URL of a new or empty store")],
) -> None:
    """Move a store to another database or file, whole or not at all, every row and every seal compared."""
    from qualgate.report.screen import fit
    from qualgate.store.copy import copy_store
    from qualgate.text.numbers import counted

    copy = copy_store(source, target)
    say(fit(f"{target}: {counted(copy.rows, 'row')} of {counted(copy.runs, 'run')} copied, each compared, seals too."))
    for line in copy.broken:
        say(fit(f"as in the store it came from: {line}"))
    if copy.broken:
        raise typer.Exit(Exit.INTEGRITY)


@db_app.command("roles")
def db_roles(
    store: Annotated[str | None, typer.Option("--store", help="the store's URL, with --apply")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="run the statements; needs the owner of the store")] = False,
    prefix: Annotated[str, typer.Option("--prefix", help="prefix of the roles' names")] = "qualgate",
) -> None:
    """Print SQL that makes a PostgreSQL store's reader, writer and approver, none of whom can rewrite its history."""
    from qualgate.store.roles import apply_roles, roles_sql

    if not apply:
        say("\n".join(roles_sql(prefix)))
        return
    say("\n".join(f"{role}: {what}" for role, what in apply_roles(store or "", prefix)))


@db_app.command("prune")
def db_prune(
    older_than: Annotated[
        float,
        typer.Option(
            "--older-than",
            metavar="DAYS",
            min=0,
            max=100_000,
            help="prune runs that ended more than this many days ago",
        ),
    ],
    store: StoreAt = "sqlite:///qualgate.db",
    yes: Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")] = False,
) -> None:
    """Take texts, token ids, arrays and scores of old runs out of the store for good. Copy it first: `db copy FROM TO`.

    Verdicts, decisions and seals stay. So do the runs that count: the newest of each gate file, the newest that was
    approved, and those of the trend since an approved run. A pruned run is invalid from then on."""
    from qualgate.store.database import open_store
    from qualgate.store.prune import to_prune
    from qualgate.text.numbers import counted

    with open_store(store, create=False) as opened:
        chosen, staying = to_prune(opened, _days_ago(older_than))
        if staying:
            older = f"{counted(staying, 'older run')} {'stays' if staying == 1 else 'stay'}"
            say(f"{older}: newest of a gate file, newest that was approved, or of the trend since an approved run.")
        if not chosen:
            say(f"No run to prune: no other complete run ended more than {older_than:g} days ago.")
            return
        if not yes and not _agreed(chosen, store):
            say("Nothing was pruned.")
            return
        damaged = _prune(opened, chosen)
        if damaged < len(chosen):
            say(opened.shrink())
    if damaged:
        raise typer.Exit(Exit.INTEGRITY)


def _agreed(chosen: Sequence[Amount], store: str) -> bool:
    """Ask at the terminal whether to prune these runs. UsageError if stdin is no terminal."""
    for amount in chosen:
        say(f"{amount.run_id}: {_amount_text(amount)}")
    if not sys.stdin.isatty():
        raise UsageError("pruning cannot be undone, and nobody can be asked here: give --yes.")
    say(f"Nothing brings these back but a copy: qualgate db copy {store} TO")
    return typer.confirm(f"Prune {len(chosen):,} of the store's runs?")


def _prune(store: Store, chosen: Sequence[Amount]) -> int:
    """Prune each run and print the removed amounts. Returns the number of damaged runs, which stay, as do runs that
    somebody else pruned or changed meanwhile; each is named."""
    from qualgate.store.prune import prune_run
    from qualgate.store.prunings import EvidencePruned
    from qualgate.text.escaping import visible_line

    removed, damaged = [], 0
    for amount in chosen:
        try:
            removed.append(prune_run(store, amount.run_id))
            say(f"{amount.run_id}: {_amount_text(removed[-1])} removed")
        except (EvidencePruned, IntegrityError, UsageError) as error:  # unless damaged, changed meanwhile
            damaged += isinstance(error, IntegrityError)
            say(visible_line(str(error)))
    say(f"{len(removed):,} of {len(chosen):,} runs pruned, {sum(amount.nbytes for amount in removed):,} bytes removed")
    return damaged


def _amount_text(amount: Amount) -> str:
    from qualgate.text.numbers import counted

    return f"{counted(amount.answers, 'answer')}, {counted(amount.scores, 'score')}, {amount.nbytes:,} bytes"


def _days_ago(days: float) -> str:
    """Return the UTC time so many days ago, in the store's format."""
    return (datetime.now(UTC) - timedelta(days=days)).isoformat(timespec="microseconds").replace("+00:00", "Z")
