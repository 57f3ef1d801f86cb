"""`qualgate config`: the gate file's schema, a check, the metrics a rule may name."""

from __future__ import annotations

import json

import typer

from qualgate.cli.arguments import GateFileArgument, JsonOption
from qualgate.cli.stdout import say

config_app = typer.Typer(help="The gate file: schema, check, and the metrics a rule may name.", no_args_is_help=True)


@config_app.command("schema")
def config_schema() -> None:
    """Print the gate file's JSON Schema (draft 7), for editors."""
    from qualgate.config import gate_file_schema

    say(json.dumps(gate_file_schema(), indent=2))


@config_app.command("check")
def config_check(gate_file: GateFileArgument) -> None:
    """Check a gate file, its models, its evalsets and the files it names, without running anything."""
    from qualgate.config import load_gate_file

    gate = load_gate_file(gate_file)  # before the slow imports below, so a misspelt key is reported at once
    from qualgate.intake.feedback import read_feedback
    from qualgate.pipeline.arms import as_run
    from qualgate.pipeline.before_run import not_counted
    from qualgate.pipeline.plan import make_plan
    from qualgate.pipeline.preflight import try_store
    from qualgate.report.screen import fit
    from qualgate.text.numbers import counted

    if gate.feedback:
        read_feedback(gate.feedback)
    try_store(gate)
    planned = make_plan(as_run(gate))
    rules = "an nel policy" if gate.nel_policy is not None else counted(len(planned.policy.rules), "rule")
    say(
        fit(
            f"{gate_file}: fine. {counted(len(gate.variants), 'variant')}, "
            f"{counted(len(planned.evalsets), 'evalset')}, {counted(len(planned.expected), 'unit')}, "
            f"{rules}."
        )
    )
    for line in not_counted(planned):
        say(fit(f"But {line}"))


@config_app.command("metrics")
def config_metrics(as_json: JsonOption = False) -> None:
    """List the metrics a rule may name."""
    from dataclasses import asdict

    from qualgate.records.metrics import METRICS
    from qualgate.report.screen import fit

    if as_json:
        say(json.dumps([asdict(metric) for metric in METRICS.values()], indent=2))
        return
    name_width, kind_width = (
        max(len(getattr(metric, field)) for metric in METRICS.values()) for field in ("name", "kind")
    )
    for metric in METRICS.values():
        head = f"{metric.name:<{name_width}}  {metric.kind:<{kind_width}}  {', '.join(metric.bounds):<9}"
        say(fit(f"{head} {metric.meaning} ({metric.unit})"))
