"""Nights: `nightly` judges what is due and reports it, `trend` shows results over many nights."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qualgate.cli.arguments import JsonOption, OptionalGateFile, RunOption, StoreOption, stored_run
from qualgate.cli.stderr import tell, tell_event
from qualgate.cli.stdout import say

if TYPE_CHECKING:
    from qualgate.config import GateFile
    from qualgate.pipeline.nights.night import Planned
    from qualgate.pipeline.outcome import Outcome


def nightly(
    nightly_file: Annotated[Path, typer.Argument(metavar="NIGHTLY.yaml", help="the nightly file")],
    plan: Annotated[bool, typer.Option("--plan", help="show what would run now, and run nothing")] = False,
    every: Annotated[bool, typer.Option("--all", help="run every entry, due or not")] = False,
    as_json: JsonOption = False,
) -> None:
    """Judge what is due by a nightly file, repeat the verdicts of what has not changed, and tell its owners.

    For a timer or cron. Exits by the newest night of everything in the file: the first of 14, 13, 64, 10, 12, 11, 0
    that occurs. --plan exits with 0, unless something would be refused (64; 13 where a server is away).
    """
    from qualgate.config.nightly import load_nightly
    from qualgate.errors.log_lines import all_are_about

    file = load_nightly(nightly_file)
    from qualgate.pipeline.nights.delivery import check_targets
    from qualgate.pipeline.nights.digest import lines
    from qualgate.pipeline.nights.night import exit_of_plan, planned
    from qualgate.pipeline.nights.whole import whole_night
    from qualgate.report.screen import fit

    now = datetime.now(UTC)
    if plan:
        ahead = planned(file, now, every=every)
        _say_plan(ahead, as_json)
        raise typer.Exit(exit_of_plan(ahead))
    for line in check_targets(file):
        tell(f"note: {line}; digests wait until it is set")
    ended = whole_night(file, _judged, now, every=every, say=_tell_next)
    all_are_about()
    if as_json:
        say(json.dumps(ended.body | {"undelivered": len(ended.waiting)}, indent=2))
    else:
        if not ended.nights and ended.due_next:
            say(f"nothing is due before {ended.due_next:%Y-%m-%d %H:%M} UTC; the last results still hold")
        say(fit("\n".join(lines(ended.body | {"undelivered": 0}))))
    for digest in ended.waiting:
        tell(
            f"not delivered: the digest of {digest.created_at[:16]} to {digest.target} ({digest.attempts} x): "
            f"{digest.error or 'waits for the previous one'}",
            level="warning",
        )
    raise typer.Exit(ended.exit)


def _tell_next(line: str) -> None:
    """Print a line on the next run; JSON log lines no longer name the run before."""
    from qualgate.errors.log_lines import all_are_about

    all_are_about()
    tell(line)


def _judged(gate: GateFile) -> Outcome:
    """Run a gate file and write the reports beside it, as `qualgate run` does."""
    from qualgate import load_report, run_gate
    from qualgate.report.formats import write_report

    outcome = run_gate(gate, warn=lambda line: tell(f"note: {line}"), observe=tell_event)
    write_report(load_report(gate.store_url, outcome.run_id, gate=gate), gate.path.parent / "qualgate-reports")
    return outcome


def _say_plan(planned: tuple[Planned, ...], as_json: bool) -> None:
    """Print what each entry of the nightly file would do now and why, with its last night, as lines or as JSON."""
    from qualgate.pipeline.nights.digest import word

    if as_json:
        entries = [
            {
                "gate": entry.item.name,
                "model": entry.item.model,
                "does": entry.does,
                "why": entry.why,
                "last_exit": entry.last.exit if entry.last else None,
            }
            for entry in planned
        ]
        say(json.dumps(entries, indent=2))
        return
    for entry in planned:
        name = f"{entry.item.name}: {Path(entry.item.model).name}" if entry.item.model else entry.item.name
        last = f"; last night: {word(entry.last.exit)}" if entry.last else ""
        say(f"{entry.does:<7} {name}  ({entry.why}{last})")


def trend(
    gate_file: OptionalGateFile = None, store: StoreOption = None, run_id: RunOption = None, as_json: JsonOption = False
) -> None:
    """Show an arm's quality night by night since the approved run, falls told from noise, and flaky cases. It decides
    nothing and exits with 0."""
    url, named = stored_run(gate_file, store, run_id)
    from qualgate.pipeline.nights.trends import trends
    from qualgate.report.trend import print_trend, trend_as_json
    from qualgate.store import queries
    from qualgate.store.database import open_store

    with open_store(url, create=False) as opened:
        chosen = named or queries.latest_run(opened)
        run = queries.run_summary(opened, chosen)
        arms, flaky = trends(opened, chosen), queries.flaky(opened, chosen)
    if as_json:
        say(json.dumps(trend_as_json(arms, flaky), indent=2))
    else:
        print_trend(arms, flaky)
        if not arms:
            why = f"it was {run.pruned}" if run.pruned else f"it is {run.status}, or a trial"
            tell(f"note: run {chosen} is no night that could be compared: {why}")
