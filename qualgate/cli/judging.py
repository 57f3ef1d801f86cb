"""Judging variants: `demo`, `run` and `plan`; `gate` and `report` from what was stored."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from qualgate.cli.arguments import (
    GateFileArgument,
    JsonOption,
    OptionalGateFile,
    RunOption,
    StoreOption,
    store_url,
    stored_run,
)
from qualgate.errors import UsageError

if TYPE_CHECKING:
    from qualgate.report.summary import Report


def demo(
    out: Annotated[Path, typer.Option("--out", help="folder for the store and the reports")] = Path("qualgate-demo"),
    as_json: JsonOption = False,
) -> None:
    """Judge four quantized variants of the shipped reference model on the shipped evalsets."""
    from importlib.resources import files

    from qualgate.report.render import write_atomically

    gate_file = out / "gate.yaml"
    write_atomically(gate_file, (files("qualgate") / "demo.yaml").read_text(encoding="utf-8"))
    _run(gate_file, as_json)


def run(
    gate_file: GateFileArgument,
    blame: Annotated[
        bool, typer.Option("--blame", help="also run packed weights through the torch twin: recipe or kernel?")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Generate with the baseline and every variant, score, store, decide. Interrupted, run it again: it resumes."""
    _run(gate_file, as_json, blame=blame)


def _run(gate_file: Path, as_json: bool, *, blame: bool = False) -> None:
    from qualgate import run as main_path
    from qualgate.config import load_gate_file
    from qualgate.report.progress import shown_progress

    gate = load_gate_file(gate_file)
    with shown_progress() as progress:
        outcome = main_path.run(gate, progress, blame=blame, warn=lambda line: typer.echo(f"note: {line}", err=True))
    if outcome.resumed:
        typer.echo(f"resumed run {outcome.run_id}", err=True)
    for failure in outcome.failures:
        typer.echo(f"could not run: {failure}", err=True)
    report = _report(gate.store_url, outcome.run_id)
    _show(report, as_json)
    written = report.write(gate_file.parent / "qualgate-reports")  # after it is shown: a full disk must not hide it
    if not as_json:
        for path in written:
            typer.echo(f"report: {path}")
        typer.echo(f"open the dashboard: {_own_name()} dashboard --store {_relative_url(gate.store_url)}\n")
        for line in report.lines():
            typer.echo(line)
    raise typer.Exit(outcome.exit)


def plan(gate_file: GateFileArgument, as_json: JsonOption = False) -> None:
    """Show what `run` would do, about how long, and how likely its policy is to decide. Generates nothing.

    Exits 0 when an identical variant would be approved in 8 of 10 runs, 12 when the policy needs a change that is
    printed, 64 when no change was found.
    """
    from qualgate.config import load_gate_file
    from qualgate.errors import Exit
    from qualgate.gate.planner import PlannedSet, plan_policy, seen_in
    from qualgate.plan import forecast, make_plan
    from qualgate.report.planning import policy_as_lines
    from qualgate.report.render import plan_as_json, plan_as_text
    from qualgate.run import earlier_evidence

    gate = load_gate_file(gate_file)
    planned = make_plan(gate)
    rows = forecast(planned, gate.workers)
    earlier = earlier_evidence(gate)
    rates = plan_policy(
        [PlannedSet.of(item) for item in planned.evalsets], planned.policy, seen_in(earlier) if earlier else None
    )
    if as_json:
        typer.echo(plan_as_json(planned, rows, rates))
    else:
        typer.echo(plan_as_text(planned, rows, gate.workers))
        typer.echo("\n".join(["", *policy_as_lines(rates, sum(row.seconds for row in rows))]))
    raise typer.Exit(Exit.USAGE if rates.refused else Exit.APPROVE if rates.decidable else Exit.UNDECIDED)


def gate(
    gate_file: OptionalGateFile = None, store: StoreOption = None, run_id: RunOption = None, as_json: JsonOption = False
) -> None:
    """Decide again from stored evidence, without generating: by the gate file's rules, refusing evidence older than the
    files it names; or (with --store alone) by the run's own rules, about what was stored then."""
    from qualgate.config import load_gate_file
    from qualgate.run import decide_again

    loaded = load_gate_file(gate_file, files=False) if gate_file is not None else None
    url = store_url(loaded.store_url if loaded else None, store)
    outcome = decide_again(url, run_id, loaded)
    report = _report(url, outcome.run_id)
    _show(report, as_json)
    if not as_json:
        for line in report.lines():
            typer.echo(line)
    raise typer.Exit(outcome.exit)


def report(
    gate_file: OptionalGateFile = None,
    store: StoreOption = None,
    run_id: RunOption = None,
    format: Annotated[str, typer.Option("--format", help="terminal, json or markdown")] = "terminal",
    out: Annotated[Path | None, typer.Option("--out", help="write to this file instead of the terminal")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show a stored run's verdicts with their numbers. The same stored evidence gives the same bytes."""
    from qualgate.report.render import write_atomically

    if format not in ("terminal", "json", "markdown"):
        raise UsageError(f"--format {format}: not one of terminal, json, markdown.")
    url, run_id = stored_run(gate_file, store, run_id)
    found = _report(url, run_id)
    form = "json" if as_json else format
    if out is not None:
        write_atomically(out, found.as_json() if form == "json" else found.as_markdown())
    elif form == "terminal":
        _show(found, as_json=False)
        for line in found.lines():
            typer.echo(line)
    else:
        typer.echo(found.as_json() if form == "json" else found.as_markdown())


def _relative_url(url: str) -> str:
    path = Path(url.removeprefix("sqlite:///"))
    return f"sqlite:///{path.relative_to(Path.cwd())}" if path.is_relative_to(Path.cwd()) else url


def _own_name() -> str:
    """How this very command can be typed again: a virtual environment's need not be on the PATH."""
    called = sys.argv[0]
    if called.endswith("__main__.py"):
        return f"{os.path.relpath(sys.executable)} -m qualgate"
    return "qualgate" if shutil.which("qualgate") == os.path.abspath(called) else os.path.relpath(called)


def _report(url: str, run_id: str | None) -> Report:
    from qualgate.report.summary import load_report

    return load_report(url, run_id)


def _show(found: Report, as_json: bool) -> None:
    if as_json:
        typer.echo(found.as_json())
    else:
        from qualgate.report.terminal import print_report

        print_report(found)
