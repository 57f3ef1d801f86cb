"""`qualgate intake`: a verdict from files that another harness wrote, without running anything again."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qualgate.cli.stdout import say
from qualgate.errors import UsageError

intake_app = typer.Typer(help="Gate what another harness logged, without running anything again.", no_args_is_help=True)


@intake_app.callback()
def intake() -> None:
    """Gate what another harness logged, without running anything again."""


@intake_app.command("lm-eval")
def lm_eval(
    baseline: Annotated[
        Path, typer.Argument(metavar="BASE.jsonl", help="the baseline's samples, by lm-eval's --log_samples")
    ],
    variant: Annotated[Path, typer.Argument(metavar="VARIANT.jsonl", help="samples of the variant for the same task")],
    gate_file: Annotated[
        Path | None, typer.Argument(metavar="[GATE.yaml]", help="gate file whose rules decide")
    ] = None,
    filter: Annotated[str | None, typer.Option("--filter", help="name of the lm-eval filter to judge")] = None,
    metric: Annotated[str | None, typer.Option("--metric", help="lm-eval metric to judge as lm_eval.score")] = None,
    max_drop: Annotated[
        float | None,
        typer.Option("--max-drop", help="without a gate file: largest drop of a score; 0.02 by default"),
    ] = None,
    max_ratio: Annotated[
        float | None,
        typer.Option("--max-ratio", help="without a gate file: largest ratio of perplexities; 1.02 by default"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="print JSON on stdout")] = False,
) -> None:
    """Judge two lm-eval sample logs, paired by document, prompt, target, filter and requests."""
    from qualgate.config import load_gate_file
    from qualgate.intake.lm_eval import default_policy, read_pair
    from qualgate.intake.row_evidence import BASELINE, KnownCases
    from qualgate.pipeline.arms import with_nel_policy
    from qualgate.pipeline.closed_list import UNION
    from qualgate.pipeline.from_files import judge_scores
    from qualgate.report.formats import rendered
    from qualgate.report.screen import fit
    from qualgate.report.terminal import print_report
    from qualgate.report.unstored import report_of
    from qualgate.store.plain import now

    if gate_file is not None and (max_drop, max_ratio) != (None, None):
        raise UsageError("give a gate file or --max-drop and --max-ratio, not both.")
    gate = None if gate_file is None else with_nel_policy(load_gate_file(gate_file, files=False))
    error_texts = gate.error_texts if gate else None
    before, after = read_pair(baseline, variant, filter=filter, metric=metric, error_texts=error_texts)
    if gate is not None:
        policy, identity = gate.policy, gate.identity
    else:
        policy, identity = default_policy(before, max_drop, max_ratio), "hash"
    evidence, decided = judge_scores(
        {BASELINE: before.scores, "variant": after.scores},
        policy,
        KnownCases(default=before.task, notes=(UNION.format(before.task), *before.notes)),
        identity=identity,
        now=now(),
        called=gate_file,
    )
    sources = [before.scores.source, after.scores.source]
    report = report_of(
        evidence, decided.verdicts, decided.policy, sources, description=f"lm-eval, filter {before.filter}"
    )
    if as_json:
        say(rendered(report, "json"))
    else:
        print_report(report)
        say(fit("\n".join(report.lines())))
    raise typer.Exit(decided.exit)
