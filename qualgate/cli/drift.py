"""`qualgate drift`: how far a variant is from its baseline, of a stored run or of two files of logits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from qualgate.cli.arguments import JsonOption, OptionalGateFile, RunOption, StoreOption, stored_run
from qualgate.errors import UsageError


def drift(
    gate_file: OptionalGateFile = None,
    store: StoreOption = None,
    run_id: RunOption = None,
    logits: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--logits", metavar="BASE.npy VARIANT.npy", help="float32 [positions, vocabulary], of each model"),
    ] = None,
    tokens: Annotated[
        Path | None, typer.Option("--tokens", metavar="TOKENS.npy", help="integers: the token after each position")
    ] = None,
    chunk: Annotated[
        int | None, typer.Option("--chunk", help="positions that read one text (llama.cpp -c 512 scores 255)")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show each variant's KL from its baseline, and where in the answers it drifts; or llama.cpp's table of logits."""
    from qualgate.report import drift as shown

    if logits is None:
        if tokens is not None or chunk is not None:
            raise UsageError("--tokens and --chunk belong to --logits BASE.npy VARIANT.npy.")
        from qualgate.drift_report import drift_report

        found = drift_report(*stored_run(gate_file, store, run_id))
        body, lines = shown.drift_json, shown.drift_lines
        typer.echo(json.dumps(body(found), indent=2, allow_nan=False) if as_json else "\n".join(lines(found)))
        return
    if gate_file is not None or store is not None or run_id is not None:
        raise UsageError("--logits reads files alone: give no gate file, --store or --run with it.")
    if tokens is None:
        raise UsageError("--logits needs --tokens TOKENS.npy, the token that follows each position.")
    from qualgate.drift.logit_files import table_of_files

    table = table_of_files(*logits, tokens, chunk)
    as_text = "\n".join(shown.table_lines(table))
    typer.echo(json.dumps(shown.table_json(table), indent=2, allow_nan=False) if as_json else as_text)
