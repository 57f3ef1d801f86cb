"""`people`: the roles of those who sign in to the dashboard."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from qualgate.cli.arguments import JsonOption, StoreOption, store_url
from qualgate.cli.stdout import say

people_app = typer.Typer(help="Who may do what in the dashboard, once people sign in.", no_args_is_help=True)


@people_app.command("list")
def people_list(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the people of a store with their roles."""
    from qualgate.report.screen import fit
    from qualgate.store.database import open_store
    from qualgate.store.people import MAY, grants
    from qualgate.text.escaping import visible_line

    with open_store(store_url(None, store), create=False) as opened, opened.read() as connection:
        held = [one for one in grants(connection).values() if one.role != "none"]
    if as_json:
        say(json.dumps([asdict(one) for one in held], indent=2))
        return
    for one in held:
        own = f"; makes runs as {', '.join(one.makes_runs_as)}" if one.makes_runs_as else ""
        say(fit(visible_line(f"{one.person}: {one.role} (may {MAY[one.role]}){own}")))
    if not held:
        say("Nobody has a role, so whoever reaches the dashboard may decide, unauthenticated.")


@people_app.command("grant")
def people_grant(
    person: Annotated[str, typer.Argument(metavar="PERSON", help="as the dashboard names them, such as an address")],
    role: Annotated[str, typer.Argument(metavar="ROLE", help="viewer, labeller, approver, admin; none takes it away")],
    store: StoreOption = None,
    makes_runs_as: Annotated[
        list[str] | None,
        typer.Option("--makes-runs-as", metavar="NAME", help="name that their runs have, as on the CI host"),
    ] = None,
) -> None:
    """Give a person a role, or take it away. From the first role on, nobody decides without signing in."""
    from qualgate.store.database import open_store
    from qualgate.store.people import Grant, grant
    from qualgate.store.planned import maker
    from qualgate.text.escaping import visible_line

    new = Grant(person=person.strip(), role=role, makes_runs_as=tuple(makes_runs_as or ()), by=maker())  # type: ignore[arg-type]
    with open_store(store_url(None, store), create=False) as opened:
        grant(opened, new)
    say(visible_line(f"{new.person}: {role}"))
