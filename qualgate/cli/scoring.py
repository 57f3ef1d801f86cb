"""Score without a model: `score` for anyone's outputs, and `rescore` for a stored run's answers."""

from __future__ import annotations

import json
from collections.abc import Collection
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from qualgate.cli.arguments import JsonOption, StoreOption, store_url
from qualgate.cli.stdout import say
from qualgate.errors import UsageError

if TYPE_CHECKING:
    from qualgate.scoring.registry import Mode

ServedByOption = Annotated[
    str | None,
    typer.Option("--served-by", metavar="ENGINE:PYTHON", help="engine whose tool parser reads `text` in --mode served"),
]


def score(
    cases: Annotated[Path, typer.Argument(metavar="CASES.jsonl", help="rows with `id` and what the scorer needs")],
    outputs: Annotated[Path, typer.Argument(metavar="OUTPUTS.jsonl", help="rows with `id`, and `text` or `calls`")],
    scorer: Annotated[str, typer.Option("--scorer", help="exact_match, numeric, json, tool_call, code, …")],
    mode: Annotated[
        str,
        typer.Option("--mode", help="how to read calls: strict, served (as a server) or compat (as references)"),
    ] = "strict",
    metric: Annotated[str | None, typer.Option("--metric", help="metric of the scorer; by default its last")] = None,
    filter: Annotated[str | None, typer.Option("--filter", help="lm-eval filter that extracts the answer")] = None,
    dialect: Annotated[
        str | None,
        typer.Option("--dialect", help="tool-call dialect of cases that declare none: hermes, mistral, …, auto"),
    ] = None,
    served_by: ServedByOption = None,
    normalizer: Annotated[
        list[str] | None,
        typer.Option("--normalizer", help="normalizer of exact_match, in order; may be repeated"),
    ] = None,
    lenient: Annotated[
        list[str] | None,
        typer.Option("--lenient", help="what json, code and multiple_choice tolerate: code_fence, trailing_text"),
    ] = None,
    k: Annotated[
        str | None,
        typer.Option("--k", help="also print pass@k, such as 1,10; needs several outputs with `repeat` for each id"),
    ] = None,
    out: Annotated[Path | None, typer.Option("--json", help="write the score rows to this file")] = None,
    summary: Annotated[
        Path | None, typer.Option("--summary", help="write the rate and pass@k to this file as JSON")
    ] = None,
) -> None:
    """Score anyone's outputs: one row an output, without a model and without a store."""
    from qualgate import score_outputs
    from qualgate.pipeline.score_files import choose_scorer
    from qualgate.report.progress import shown_progress
    from qualgate.report.render import write_atomically
    from qualgate.report.scored import scored_json, scored_lines
    from qualgate.report.screen import fit
    from qualgate.scoring.strict_json import LENIENT
    from qualgate.scoring.text import known

    if mode not in ("strict", "served", "compat"):
        raise UsageError(f"--mode {mode}: not one of strict, served, compat.")
    _check_known("--normalizer", normalizer or [], known())
    _check_known("--lenient", lenient or [], LENIENT)
    ks = _numbers("--k", k) if k is not None else ()
    _refuse_overwriting((cases, outputs), {"--json": out, "--summary": summary})
    chosen = choose_scorer(scorer, cast("Mode", mode), dialect=dialect, filter=filter, served_by=served_by)
    with shown_progress("rows") as progress:
        scored = score_outputs(
            cases, outputs, chosen, metric=metric, normalizers=normalizer or (), lenient=lenient or (),
            progress=progress,
        )  # fmt: skip
    if out is not None:
        write_atomically(out, "\n".join(json.dumps(row.as_json(), allow_nan=False) for row in scored.rows))
    ks = ks or ((1,) if scored.repeats > 1 else ())
    if summary is not None:
        write_atomically(summary, json.dumps(scored_json(scored, ks), indent=2, allow_nan=False))
    say(fit("\n".join(scored_lines(scored, ks))))


def rescore(
    named: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN] [GATE.yaml]", help="id of a run (the newest by default); gate file"),
    ] = None,
    store: StoreOption = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="show what would change, and store nothing")] = False,
    as_json: JsonOption = False,
) -> None:
    """Score a stored run's answers again, without a model: by today's metrics and references, and decide anew."""
    from qualgate.config import load_gate_file
    from qualgate.pipeline import rescore as scoring_again
    from qualgate.report.progress import shown_progress
    from qualgate.report.rescored import rescored_json, rescored_lines
    from qualgate.report.screen import fit

    run_id, gate_file = _run_and_gate_file(named or [])
    loaded = load_gate_file(gate_file, files=False) if gate_file is not None else None
    url = store_url(loaded.store_url if loaded else None, store)
    with shown_progress() as progress:
        rescored = scoring_again.rescore(url, run_id, loaded, keep=not dry_run, progress=progress)
    say(json.dumps(rescored_json(rescored), indent=2) if as_json else fit("\n".join(rescored_lines(rescored))))
    raise typer.Exit(rescored.exit)


def _run_and_gate_file(named: list[str]) -> tuple[str | None, Path | None]:
    """Return the run and the gate file from arguments in either order: a gate file ends in .yaml or .yml, or exists."""
    files = [Path(name) for name in named if name.endswith((".yaml", ".yml")) or Path(name).is_file()]
    ids = [name for name in named if Path(name) not in files]
    if len(files) > 1 or len(ids) > 1:
        raise UsageError(
            f"{' '.join(named):.200}: give one run and one gate file at most: qualgate rescore RUN GATE.yaml"
        )
    return next(iter(ids), None), next(iter(files), None)


def _refuse_overwriting(inputs: tuple[Path, ...], outputs: dict[str, Path | None]) -> None:
    """Raise UsageError if an output is also an input or another output. outputs: option → file, None if not given."""
    paths = {file.resolve() for file in inputs}
    for option, file in outputs.items():
        if file is not None and file.resolve() in paths:
            raise UsageError(f"{option} {file} would overwrite what is read or written beside it; give another file.")
        paths |= {file.resolve()} if file is not None else set()


def _check_known(option: str, names: list[str], choices: Collection[str]) -> None:
    for name in names:
        if name not in choices:
            raise UsageError(f"{option} {name}: not one of {', '.join(choices)}.")


def _numbers(option: str, value: str) -> tuple[int, ...]:
    parts = [part.strip() for part in value.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) <= 9 and int(part) > 0 for part in parts):
        raise UsageError(f"{option} {value}: expected whole numbers from 1, with commas between them, as 1,10.")
    return tuple(sorted({int(part) for part in parts}))
