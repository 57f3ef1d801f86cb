"""`qualgate draft`: heads that draft for a model, trained on its own answers; and what any draft is worth to it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, cast

import typer

from qualgate.cli.arguments import JsonOption
from qualgate.cli.stdout import say
from qualgate.errors import UsageError

if TYPE_CHECKING:
    from qualgate.engine.draft_heads.folder import Layout
    from qualgate.records import ArmSpec

draft_app = typer.Typer(
    help="Drafts for a model: try them on your prompts, train a head of its own.", no_args_is_help=True
)

QuantizeOption = Annotated[
    str | None,
    typer.Option("--quantize", metavar="METHOD", help="the variant's `quantize:`: the head learns on those weights"),
]
OptionOption = Annotated[
    list[str] | None, typer.Option("--option", metavar="KEY=VALUE", help="any other key of that `quantize:`")
]


@draft_app.command("train")
def draft_train(
    model: Annotated[str, typer.Argument(metavar="MODEL", help="the target's folder, or `reference`")],
    evalset: Annotated[list[str], typer.Option("--evalset", help="whose prompts it learns on; several are given each")],
    out: Annotated[Path, typer.Option("--out", help="the folder to make")],
    layout: Annotated[str, typer.Option("--layout", help="eagle, medusa or parallel")] = "eagle",
    tokens: Annotated[int, typer.Option("--tokens", help="of the drafts that it learns to make")] = 5,
    steps: Annotated[int, typer.Option("--steps", help="of the training")] = 1000,
    cases: Annotated[int, typer.Option("--cases", help="that are taken, drawn by the seed; 0: all")] = 0,
    held_out: Annotated[float, typer.Option("--held-out", help="share of the cases that it is tried on")] = 0.1,
    quantize: QuantizeOption = None,
    option: OptionOption = None,
    dtype: Annotated[str, typer.Option("--dtype", help="the gate file's: bfloat16, float16 or float32")] = "bfloat16",
    seed: Annotated[int, typer.Option("--seed", help="of the order, of who is held out, of the first weights")] = 0,
    cache: Annotated[Path, typer.Option("--cache", help="where packed weights are kept")] = Path(".qualgate"),
    as_json: JsonOption = False,
) -> None:
    """Train a head that drafts for MODEL, on answers that MODEL gives to an evalset's prompts.

    Name the folder in the gate file: `speculation: {draft: {head: ./FOLDER}, tokens: 5}`. It drafts for these weights
    alone: train it with the variant's `quantize` and `dtype`.
    """
    from qualgate import evalsets
    from qualgate.engine.draft_heads.folder import LAYOUTS
    from qualgate.engine.draft_heads.making import HeadOrder, train_head
    from qualgate.engine.draft_heads.training import Lessons
    from qualgate.report.heads import head_lines
    from qualgate.report.progress import shown_progress
    from qualgate.report.screen import fit

    if layout not in LAYOUTS:
        raise UsageError(f"--layout is {' or '.join(LAYOUTS)}, not {layout!r}.")
    order = HeadOrder(
        target=_target(model, quantize, option or [], dtype),
        cases=[case for name in dict.fromkeys(evalset) for case in evalsets.load(name, Path.cwd()).cases],
        out=out, lessons=Lessons(layout=cast("Layout", layout), tokens=tokens, steps=steps, seed=seed),
        share=held_out, most=cases,
    )  # fmt: skip
    with shown_progress("") as progress:
        made = train_head(order, cache, progress)
    say(json.dumps(made.as_json(), indent=2) if as_json else fit("\n".join(head_lines(made))))


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
    from qualgate.report.screen import fit

    if out.exists() and not (out.is_file() and out.read_bytes().startswith(WRITTEN.encode())):
        raise UsageError(f"{out} is there already, and `qualgate draft compare` did not write it: name another --out.")
    folder = model if model == "reference" else str(Path(model).absolute())
    write_atomically(out, trial_file(folder, draft or (), evalset, quantize, Path.cwd()))
    with shown_progress("prompts") as progress:
        tried = list(try_drafts(load_gate_file(out), cases, cache, progress))
    told = [one.as_json() for one in tried]
    say(json.dumps(told, indent=2) if as_json else fit("\n".join(trial_lines(tried, str(out)))))


def _target(model: str, quantize: str | None, options: list[str], dtype: str) -> ArmSpec:
    """As a gate file's variant of this model is. UsageError for what none could be."""
    from qualgate import refmodel
    from qualgate.quant.recipes import words_of_recipe
    from qualgate.records import ArmSpec

    if dtype not in ("bfloat16", "float16", "float32"):
        raise UsageError(f"--dtype is bfloat16, float16 or float32, not {dtype!r}.")
    if options and quantize is None:
        raise UsageError("--option is a key of `quantize`, and --quantize is missing.")
    recipe = None
    if quantize is not None:
        recipe = words_of_recipe(quantize, options, [], bits=None, group_size=None, calibration=None)
        if recipe.calibration:
            raise UsageError(
                "--quantize with a calibration set is not trained on from here: make the folder first (`qualgate "
                "quantize`), and name that as MODEL and as the variant's `model`."
            )
    return ArmSpec(
        name="target",
        model=str((refmodel.PATH if model == "reference" else Path(model)).resolve()),
        dtype=cast(Literal["bfloat16", "float16", "float32"], dtype),
        quantize=recipe,
    )
