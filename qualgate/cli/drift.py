"""`qualgate drift`: how far a variant is from its baseline, of a stored run or of two files of logits."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import typer

from qualgate.cli.arguments import JsonOption, OptionalGateFile, RunOption, StoreOption, stored_run
from qualgate.cli.stdout import say
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
    keep: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--keep", metavar="BASE.npy KEPT", help="keep a baseline's logits in few bytes"),
    ] = None,
    kept: Annotated[
        tuple[Path, Path] | None,
        typer.Option("--kept", metavar="KEPT VARIANT.npy", help="KL of a variant's logits from a kept baseline's"),
    ] = None,
    at_most: Annotated[
        float | None, typer.Option("--at-most", help="nats: the certified error of a variant close by (default 1e-4)")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show each variant's KL from its baseline, and where in the answers it drifts; or that of two files of logits."""
    from qualgate.report import drift as shown

    of_files = [name for name, given in (("--logits", logits), ("--keep", keep), ("--kept", kept)) if given]
    if len(of_files) > 1:
        raise UsageError(f"{' and '.join(of_files)}: give one of them.")
    if of_files and (gate_file is not None or store is not None or run_id is not None):
        raise UsageError(f"{of_files[0]} reads files alone: give no gate file, --store or --run with it.")
    if at_most is not None and keep is None:
        raise UsageError("--at-most belongs to --keep BASE.npy KEPT.")
    if keep is not None or kept is not None:
        if tokens is not None or chunk is not None:
            raise UsageError(f"--tokens and --chunk belong to --logits, not to {of_files[0]}.")
        body, lines = _keep(*keep, at_most) if keep else _kept(*kept) if kept else ({}, [])
        say(json.dumps(body, indent=2, allow_nan=False) if as_json else "\n".join(lines))
        return
    if logits is None:
        if tokens is not None or chunk is not None:
            raise UsageError("--tokens and --chunk belong to --logits BASE.npy VARIANT.npy.")
        from qualgate.pipeline.run_drift import drift_report

        found = drift_report(*stored_run(gate_file, store, run_id))
        body, lines = shown.drift_json, shown.drift_lines
        say(json.dumps(body(found), indent=2, allow_nan=False) if as_json else "\n".join(lines(found)))
        return
    if tokens is None:
        raise UsageError("--logits needs --tokens TOKENS.npy, the token that follows each position.")
    from qualgate.drift.logit_files import table_of_files

    table = table_of_files(*logits, tokens, chunk)
    as_text = "\n".join(shown.table_lines(table))
    say(json.dumps(shown.table_json(table), indent=2, allow_nan=False) if as_json else as_text)


def _keep(base: Path, into: Path, at_most: float | None) -> tuple[dict[str, Any], list[str]]:
    from qualgate.drift.kept_files import keep_file
    from qualgate.drift.stored import AT_MOST
    from qualgate.report.drift import kept_lines
    from qualgate.report.render import write_atomically

    if base.exists() and into.exists() and into.samefile(base):
        raise UsageError(f"--keep would write over {base}; name another file.")
    content, took = keep_file(base, AT_MOST if at_most is None else at_most)
    write_atomically(into, content)
    return asdict(took), kept_lines(took)


def _kept(kept: Path, variant: Path) -> tuple[dict[str, Any], list[str]]:
    from qualgate.drift.kept_files import kl_from_file
    from qualgate.report.drift import certified_json, certified_lines

    found = kl_from_file(kept, variant)
    return certified_json(found), certified_lines(found)
