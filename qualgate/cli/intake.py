"""`qualgate intake`: a verdict from results that another harness wrote, without running anything again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qualgate.errors import UsageError


def named_columns(option: str) -> dict[str, str]:
    """Read `--columns`. UsageError for what is not meaning=column."""
    parts = [part.partition("=") for part in option.split(",") if part.strip()]
    if bad := next((part for part in parts if not (part[0].strip() and part[2].strip())), None):
        raise UsageError(f"--columns {''.join(bad):.60}: write id=NAME,score=NAME")
    return {meaning.strip(): name.strip() for meaning, _, name in parts}


def intake(
    baseline: Annotated[Path, typer.Argument(metavar="BASE", help="the baseline's results: a file or a folder")],
    variant: Annotated[Path, typer.Argument(metavar="VARIANT", help="the variant's, by the same harness")],
    gate_file: Annotated[Path | None, typer.Argument(metavar="[GATE.yaml]", help="its rules decide")] = None,
    format: Annotated[str, typer.Option("--format", help="the harness, if it is not recognised")] = "",
    task: Annotated[str, typer.Option("--task", help="task to judge, if there are several")] = "",
    baseline_model: Annotated[
        str, typer.Option("--baseline-model", help="the baseline's model, if its results hold several")
    ] = "",
    variant_model: Annotated[
        str, typer.Option("--variant-model", help="the variant's model, if its results hold several")
    ] = "",
    filter: Annotated[str, typer.Option("--filter", help="name of the lm-eval filter to judge")] = "",
    metric: Annotated[str, typer.Option("--metric", help="the only metric to judge; of lm-eval as lm_eval.score")] = "",
    columns: Annotated[str, typer.Option("--columns", help="columns of a table: id=NAME,score=NAME")] = "",
    max_drop: Annotated[
        float | None,
        typer.Option("--max-drop", help="without a gate file: largest drop of a score; 0.02 by default"),
    ] = None,
    max_ratio: Annotated[
        float | None,
        typer.Option("--max-ratio", help="without a gate file: largest ratio of perplexities; 1.02 by default"),
    ] = None,
    peers: Annotated[bool, typer.Option("--peers", help="show what other projects' rules say, too")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON on stdout")] = False,
) -> None:
    """Judge results of another harness, paired by its own ids and by what was asked.

    Reads results of lm-eval, inspect, promptfoo, OpenAI Evals, Every Eval Ever, MLflow, lighteval, NeMo Evaluator, BFCL
    and HELM, and tables (CSV, JSON lines). Without a gate file each metric may drop by 2 points.
    """
    from qualgate.cli.deciding import show
    from qualgate.config import load_gate_file
    from qualgate.gate.peers.said import what_peers_say
    from qualgate.intake.harnesses.log import Choice
    from qualgate.pipeline.arms import with_nel_policy
    from qualgate.pipeline.from_harnesses import judge_results
    from qualgate.report.unstored import report_of_results

    gate = None if gate_file is None else with_nel_policy(load_gate_file(gate_file, files=False))
    if gate is not None and (max_drop, max_ratio) != (None, None):
        raise UsageError("give a gate file or --max-drop and --max-ratio, not both.")
    first, second = (
        Choice(task=task, model=model, filter=filter, metric=metric, columns=named_columns(columns))
        for model in (baseline_model, variant_model)
    )
    judged = judge_results(
        baseline, variant, gate, format=format, choices=(first, second), max_drop=max_drop, max_ratio=max_ratio
    )
    report = report_of_results(judged)
    show(
        report, "json" if as_json else "terminal", None, what_peers_say(judged.evidence, losses=True) if peers else None
    )
    raise typer.Exit(judged.decided.exit)
