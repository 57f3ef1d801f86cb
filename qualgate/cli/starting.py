"""`qualgate init`: a first gate file and evalset, from a model's folder and cases of one's own."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from qualgate.cli.arguments import own_name
from qualgate.cli.stderr import tell
from qualgate.cli.stdout import say


def init(
    model: Annotated[str, typer.Option("--model", help="the baseline's folder; `reference` is the shipped model")],
    variant: Annotated[list[str] | None, typer.Option("--variant", help="a variant's folder; may be repeated")] = None,
    quantize: Annotated[
        list[str] | None,
        typer.Option("--quantize", help="make a variant of the baseline: int8, int4, mxfp4, …; may be repeated"),
    ] = None,
    cases: Annotated[
        Path | None, typer.Option("--cases", metavar="MINE.jsonl", help="your cases, one JSON object a line")
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option("--max-new-tokens", min=1, help="length limit of an answer, in tokens")
    ] = None,
    judge: Annotated[
        Path | None,
        typer.Option(
            "--judge", metavar="JUDGE.yaml", help="file that describes a judge model: endpoint, model, rubric, labels"
        ),
    ] = None,
    no_look: Annotated[
        bool,
        typer.Option(
            "--no-look", help="do not ask the baseline; by default its answers to a few cases choose the metric"
        ),
    ] = False,
) -> None:
    """Write a first gate file and evalset into this folder, each key explained; nothing is overwritten."""
    from qualgate.pipeline.start import GATE_FILE, Models, start
    from qualgate.report.screen import fit

    models = Models(model=model, variants=variant or (), quantize=quantize or (), judge=judge)
    started = start(Path.cwd(), models, cases, max_new_tokens, look=not no_look, progress=tell)
    for note in started.notes:
        tell(f"note: {note}")
    say(fit(f"written: {', '.join(started.files)}"))
    name = own_name()
    rows = (
        ("plan " + GATE_FILE, "how long it takes, and how likely it is to decide"),
        (f"run {GATE_FILE} --limit 5", "a trial of five cases: does everything work?"),
        ("run " + GATE_FILE, "the verdict"),
    )
    width = max(len(command) for command, _ in rows)
    say("next:")
    for command, what in rows:
        say(f"  {name} {command:<{width}}  # {what}")
