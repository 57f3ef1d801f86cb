"""People's labels, preferences and roles: `label` sets one, `labels` lists, exports and proposes, `preferences` sums up
blind comparisons, `people` gives roles."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from qualgate.cli.arguments import JsonOption, StoreOption, store_url
from qualgate.cli.looking import RunArgument
from qualgate.cli.stdout import say
from qualgate.errors import UsageError

people_app = typer.Typer(help="Who may do what in the dashboard, once people sign in.", no_args_is_help=True)
FORMATS = ("terminal", "json", "jsonl", "csv")


def label(
    run: RunArgument,
    case: Annotated[str, typer.Argument(metavar="CASE", help="id of a case, or EVALSET/ID")],
    word: Annotated[
        str,
        typer.Argument(
            metavar="LABEL",
            help="regression, acceptable, wrong-reference or flaky; none removes the label; comment adds the note",
        ),
    ],
    variant: Annotated[str, typer.Option("--variant", help="name of the variant whose answer is labelled")],
    name: Annotated[str, typer.Option("--name", help="your name")],
    note: Annotated[str, typer.Option("--note", help="why; the text of a comment")] = "",
    evalset: Annotated[str | None, typer.Option("--evalset", help="the case's evalset, if several have its id")] = None,
    repeat: Annotated[int, typer.Option("--repeat", min=0, help="which of several answers to the case")] = 0,
    store: StoreOption = None,
) -> None:
    """Label a variant's answer to one case, or comment on it. That changes no score and no verdict; the next run shows
    it."""
    from qualgate.report.screen import fit
    from qualgate.store.database import open_store
    from qualgate.store.labels import NO_LABEL, find_answer, set_label
    from qualgate.text.escaping import visible_line

    with open_store(store_url(None, store), create=False) as opened:
        unit = find_answer(opened, run, variant, case, evalset, repeat)
        stored = set_label(opened, run, unit, word.replace("-", " "), name=name, note=note)
    done = "label removed" if stored.label == NO_LABEL else stored.text + stored.ending
    say(fit(visible_line(f"{unit.question}: {done}")))


def labels(
    run: Annotated[str | None, typer.Option("--run", help="only labels of this run")] = None,
    variant: Annotated[str | None, typer.Option("--variant", help="only labels of this variant")] = None,
    propose: Annotated[
        bool, typer.Option("--propose", help="print what the labels propose for the next run; changes nothing")
    ] = False,
    format: Annotated[str, typer.Option("--format", help="terminal, json, jsonl or csv")] = "terminal",
    out: Annotated[Path | None, typer.Option("--out", help="write to this file; JSON lines by default")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """List the labels and comments that people gave to changed answers, export them, or print what the labels propose:
    references to correct, and cases for quarantine."""
    from qualgate.report.label_list import labels_jsonl, print_labels, proposals, proposals_yaml, records_csv
    from qualgate.report.render import write_atomically
    from qualgate.store import labels as stored_labels
    from qualgate.store.database import open_store

    if format not in FORMATS:
        raise UsageError(f"--format {format:.40}: not one of {', '.join(FORMATS)}.")
    form = "json" if as_json else format
    if propose and form not in ("terminal", "json"):
        raise UsageError(f"--propose prints YAML, or JSON with --json; it does not work with --format {form}.")
    with open_store(store_url(None, store), create=False) as opened:
        found = stored_labels.labels(opened, run, variant, comments=not propose)
    if propose:
        proposed = proposals(found, datetime.now(UTC).date())
        text = _json(asdict(proposed)) if form == "json" else proposals_yaml(proposed)
    elif form == "json":
        text = _json([asdict(stored) for stored in found])
    elif form == "csv":
        text = records_csv(stored_labels.Label, found)
    else:
        text = labels_jsonl(found)
    if out is not None:
        write_atomically(out, text)
    elif propose or form != "terminal":
        say(text, nl=False)
    elif found:
        print_labels(found)
    else:
        say("no labels yet: set them in `qualgate dashboard`, or with `qualgate label`")


def preferences(
    run: RunArgument,
    variant: Annotated[str | None, typer.Argument(metavar="[VARIANT]", help="only preferences about it")] = None,
    store: StoreOption = None,
    as_json: JsonOption = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="print each preference that counts as CSV")] = False,
) -> None:
    """Show what people who compared answers blind prefer: won and lost cases, agreement, a taste for a place."""
    from qualgate.report import blind, screen
    from qualgate.report.label_list import records_csv
    from qualgate.report.terminal_blocks import print_sections
    from qualgate.store import preferences as stored
    from qualgate.store.database import open_store

    if as_json and as_csv:
        raise UsageError("--json and --csv are two formats; give one of them.")
    with open_store(store_url(None, store), create=False) as opened:
        given = [one for one in stored.preferences(opened, run) if variant in (None, one.variant)]
        units = [pair.unit for pair in blind.pairs_to_compare(opened, run) if variant in (None, pair.unit.arm)]
    names = sorted({unit.arm for unit in units} | {one.variant for one in given})
    if variant is not None and not names:
        raise UsageError(f"run {run} has no two different answers of {variant!r:.80} and the baseline.")
    found = blind.summaries(given, names)
    if as_csv:
        say(records_csv(stored.Preference, given), nl=False)
    elif as_json:
        say(_json(blind.results_body(found, units)), nl=False)
    elif given:
        print_sections(screen.console(), [blind.results_section(found, units)])
    else:
        say(f"nobody has compared answers of run {run} yet: `Compare blind` in `qualgate dashboard`")


def _json(value: object) -> str:
    return json.dumps(value, indent=2, allow_nan=False) + "\n"


@people_app.command("list")
def people_list(store: StoreOption = None, as_json: JsonOption = False) -> None:
    """List the people of a store with their roles."""
    from qualgate.report.screen import fit
    from qualgate.store.database import open_store
    from qualgate.store.people import MAY, grants, has_people
    from qualgate.text.escaping import visible_line

    with open_store(store_url(None, store), create=False) as opened, opened.read() as connection:
        held = [one for one in grants(connection).values() if one.role != "none"]
        closed = has_people(connection)
    if as_json:
        say(json.dumps([asdict(one) for one in held], indent=2))
        return
    for one in held:
        own = f"; makes runs as {', '.join(one.makes_runs_as)}" if one.makes_runs_as else ""
        say(fit(visible_line(f"{one.person}: {one.role} (may {MAY[one.role]}){own}")))
    if not held and closed:
        say("Nobody has a role that counts, so nobody may decide.")
    elif not held:
        say("Nobody was given a role, so whoever reaches the dashboard may decide, unauthenticated.")


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
