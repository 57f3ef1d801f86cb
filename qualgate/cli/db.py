"""The store's schema, who may do what in it, and its move to another database: `qualgate db`."""

from __future__ import annotations

from typing import Annotated

import typer

from qualgate.cli.stdout import say
from qualgate.errors import Exit

db_app = typer.Typer(help="The store: its schema, its roles, its move.", no_args_is_help=True)
StoreAt = Annotated[str, typer.Option("--store", help="the store's URL")]


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
