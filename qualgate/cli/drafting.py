"""`qualgate draft`: measure the gain of drafts for a model on your prompts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from qualgate.cli.arguments import JsonOption
from qualgate.cli.stdout import say
from qualgate.errors import UsageError


class _Drafts(TyperGroup):
    """The command group, with a message for `train`, which does not exist."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Resolve a command as click does, but refuse `train` with advice."""
        if args[:1] == ["train"]:
            raise UsageError(
                "qualgate trains no draft heads. Train an EAGLE-3 head with `speculators`, and name its folder: draft: "
                "{head: ./FOLDER}. What production drafts is judged by served arms (`serve`, `endpoint`)."
            )
        return super().resolve_command(ctx, args)


draft_app = typer.Typer(cls=_Drafts, help="Drafts for a model: try them on your prompts.", no_args_is_help=True)


@draft_app.command("compare")
def draft_compare(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="the target's folder, or `reference`")],
    evalset: Annotated[
        list[str], typer.Option("--evalset", help="evalset whose prompts are answered; may be repeated")
    ],
    draft: Annotated[
        list[str] | None,
        typer.Option(
            "--draft", metavar="DRAFT", help="a draft as in a gate file: ngram, '{quantize: mxfp4}'; may be repeated"
        ),
    ] = None,
    cases: Annotated[int, typer.Option("--cases", help="number of cases to draw from each evalset")] = 20,
    quantize: Annotated[
        str | None,
        typer.Option("--quantize", metavar="RECIPE", help="recipe that quantizes the target, as in a gate file: int4"),
    ] = None,
    out: Annotated[Path, typer.Option("--out", help="gate file to write; folders of drafts are relative to it")] = Path(
        "qualgate-drafts.yaml"
    ),
    cache: Annotated[Path, typer.Option("--cache", help="folder for packed weights")] = Path(".qualgate"),
    as_json: JsonOption = False,
) -> None:
    """Try drafts for MODEL on your prompts: what is accepted of each, and what it gains, one sequence at a time.

    Decides nothing. The gate file that it writes has each draft as a variant: `qualgate run` judges them.
    """
    from qualgate.config import load_gate_file
    from qualgate.pipeline.draft_compare import WRITTEN, drafts_file, try_drafts
    from qualgate.report.draft_compare import comparison_lines
    from qualgate.report.progress import shown_progress
    from qualgate.report.render import write_atomically

    if out.exists() and not (out.is_file() and out.read_bytes().startswith(WRITTEN.encode())):
        raise UsageError(f"{out} already exists, and `qualgate draft compare` did not write it: name another --out.")
    folder = model if model == "reference" else str(Path(model).absolute())
    write_atomically(out, drafts_file(folder, draft or (), evalset, quantize, Path.cwd()))
    with shown_progress("prompts") as progress:
        results = list(try_drafts(load_gate_file(out), cases, cache, progress))
    bodies = [result.as_json() for result in results]
    say(json.dumps(bodies, indent=2) if as_json else "\n".join(comparison_lines(results, str(out))))
