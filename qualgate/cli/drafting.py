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
    evalset: Annotated[list[str], typer.Option("--evalset", help="whose prompts are answered; several are given each")],
    draft: Annotated[
        list[str] | None,
        typer.Option("--draft", metavar="DRAFT", help="as in a gate file: ngram, '{quantize: mxfp4}'; several each"),
    ] = None,
    cases: Annotated[int, typer.Option("--cases", help="of each evalset, drawn by the seed")] = 20,
    quantize: Annotated[
        str | None, typer.Option("--quantize", metavar="RECIPE", help="the target's, as in a gate file: int4")
    ] = None,
    out: Annotated[
        Path, typer.Option("--out", help="the gate file to write; folders that a draft names are relative to its own")
    ] = Path("qualgate-drafts.yaml"),
    cache: Annotated[Path, typer.Option("--cache", help="where packed weights are kept")] = Path(".qualgate"),
    as_json: JsonOption = False,
) -> None:
    """Try drafts for MODEL on your prompts: what is accepted of each, and what it gains, one sequence at a time.

    Decides nothing. The gate file that it writes has each draft as a variant: `qualgate run` judges them.
    """
    from qualgate.config import load_gate_file
    from qualgate.pipeline.draft_trial import WRITTEN, trial_file, try_drafts
    from qualgate.report.draft_trial import trial_lines
    from qualgate.report.progress import shown_progress
    from qualgate.report.render import write_atomically

    if out.exists() and not (out.is_file() and out.read_bytes().startswith(WRITTEN.encode())):
        raise UsageError(f"{out} is there already, and `qualgate draft compare` did not write it: name another --out.")
    folder = model if model == "reference" else str(Path(model).absolute())
    write_atomically(out, trial_file(folder, draft or (), evalset, quantize, Path.cwd()))
    with shown_progress("prompts") as progress:
        trials = list(try_drafts(load_gate_file(out), cases, cache, progress))
    bodies = [trial.as_json() for trial in trials]
    say(json.dumps(bodies, indent=2) if as_json else "\n".join(trial_lines(trials, str(out))))
