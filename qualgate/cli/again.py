"""`qualgate again`: answer one case of a stored run again with both arms, and compare."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from qualgate.cli.arguments import JsonOption, StoreOption, store_url
from qualgate.cli.looking import RunArgument
from qualgate.cli.stderr import tell
from qualgate.cli.stdout import say


def again(
    run: RunArgument,
    case: Annotated[str, typer.Argument(metavar="CASE", help="a case's id; `qualgate flips` and `answers` show them")],
    variant: Annotated[
        str | None, typer.Option("--variant", help="name of a variant; by default the first one")
    ] = None,
    evalset: Annotated[
        str | None, typer.Option("--evalset", help="the evalset of the case; needed if several have a case of this id")
    ] = None,
    repeat: Annotated[
        int, typer.Option("--repeat", min=0, help="which of several answers to the case, counted from 0")
    ] = 0,
    store: StoreOption = None,
    as_json: JsonOption = False,
) -> None:
    """Answer one case of a stored run again with baseline and variant, and compare both answers token by token.

    Nothing is stored. Exits 0 if both new answers are the stored ones, 12 if a folder or server is not as the run
    recorded it (nothing is generated) or if an answer differs that need not repeat, 14 if an answer differs for no
    known reason.
    """
    from qualgate.pipeline.again import WantedCase, answer_again
    from qualgate.report.again import again_json, print_again
    from qualgate.report.progress import shown_progress

    wanted = WantedCase(run_id=run, case_id=case, variant=variant, evalset=evalset, repeat=repeat)
    with shown_progress() as progress:
        result = answer_again(
            store_url(None, store),
            wanted,
            planning=lambda line: progress(line, 0, 0),
            warn=lambda line: tell(f"note: {line}"),
        )
    if as_json:
        say(json.dumps(again_json(result), indent=2, allow_nan=False))
    else:
        print_again(result)
    raise typer.Exit(result.exit)
