"""`qualgate config`: the gate file's schema, a check, the metrics a rule may name."""

from __future__ import annotations

import json

import typer

from qualgate.cli.arguments import GateFileArgument, JsonOption

config_app = typer.Typer(help="The gate file: schema, check, and the metrics a rule may name.", no_args_is_help=True)


@config_app.command("schema")
def config_schema() -> None:
    """Print the gate file's JSON Schema (draft 7), for editors."""
    from qualgate.config import gate_file_schema

    typer.echo(json.dumps(gate_file_schema(), indent=2))


@config_app.command("check")
def config_check(gate_file: GateFileArgument) -> None:
    """Check a gate file, its models and its evalsets without running anything."""
    from qualgate.config import load_gate_file
    from qualgate.plan import make_plan

    planned = make_plan(load_gate_file(gate_file))
    typer.echo(
        f"{gate_file}: fine. {len(planned.arms) - 1} variants, {len(planned.evalsets)} evalsets, "
        f"{len(planned.expected)} units, {len(planned.policy.rules)} rules."
    )


@config_app.command("metrics")
def config_metrics(as_json: JsonOption = False) -> None:
    """List the metrics a rule may name."""
    from dataclasses import asdict

    from qualgate.metrics import METRICS

    if as_json:
        typer.echo(json.dumps([asdict(metric) for metric in METRICS.values()], indent=2))
        return
    for metric in METRICS.values():
        typer.echo(
            f"{metric.name:<22} {metric.kind:<8} {', '.join(metric.bounds):<10} {metric.meaning} ({metric.unit})"
        )
