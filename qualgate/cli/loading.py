"""`load`: measure the latency of served arms under load, and judge it by `load.rules`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from qualgate.cli.arguments import GateFileArgument, JsonOption
from qualgate.cli.stderr import tell
from qualgate.cli.stdout import say
from qualgate.errors import EXIT_ORDER, Exit, UsageError

ENDS = {"approve": Exit.APPROVE, "block": Exit.BLOCK, "undecided": Exit.UNDECIDED}


def load(
    gate_file: GateFileArgument,
    definitions: Annotated[
        str,
        typer.Option("--as", metavar="NAME", help="definitions of TTFT and TPOT: qualgate, vllm or guidellm"),
    ] = "qualgate",
    out: Annotated[
        Path | None,
        typer.Option("--out", help="folder for load.json, load.jsonl, load.svg; qualgate-reports/ by default"),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Measure served arms under load, in turns: latency, throughput, goodput. With `load.rules` it judges them, keeps
    that in the store, and ends as `run` does; without, 0 says that it was measured."""
    from qualgate.config import load_gate_file
    from qualgate.pipeline.load.definitions import DEFINITIONS
    from qualgate.pipeline.load.rules import check_rules, policy_sha256
    from qualgate.pipeline.load.run import measure
    from qualgate.pipeline.load.summary import summarised
    from qualgate.report.load import load_body, print_load, requests_of
    from qualgate.report.load_sections import load_picture
    from qualgate.report.plots.load import as_file
    from qualgate.report.render import write_atomically
    from qualgate.store import loads
    from qualgate.store.database import open_store

    if definitions not in DEFINITIONS:
        raise UsageError(f"--as {definitions}: there are the definitions of {', '.join(DEFINITIONS)}")
    gate = load_gate_file(gate_file)
    for line in check_rules(gate):
        tell(line)
    folder = out or gate_file.parent / "qualgate-reports"
    write_atomically(probe := folder / ".qualgate-load", "")  # fail before measuring if it cannot be written
    probe.unlink()
    if gate.load.rules:
        open_store(gate.store_url).close()
    loaded = measure(gate, tell)
    summary = summarised(loaded, DEFINITIONS[definitions], gate.policy.slo, gate.policy.alpha)
    body = load_body(summary)
    as_text = json.dumps(body, indent=2, allow_nan=False)
    if as_json:
        say(as_text)
    else:
        print_load(body)
    write_atomically(folder / "load.json", as_text)
    write_atomically(folder / "load.jsonl", "\n".join(requests_of(loaded)))
    write_atomically(folder / "load.svg", as_file(load_picture(body)))
    tell(f"written: {folder}/load.json, load.jsonl (every request), load.svg")
    ends = {ENDS[verdict.word] for verdict in summary.verdicts}
    code = next((exit for exit in EXIT_ORDER if exit in ends), Exit.APPROVE)
    if summary.unanswered:
        named = ", ".join(f"{row.arm} at {row.level.label}" for row in summary.unanswered[:5])
        tell(f"qualgate: not one answer counts of {named}, so nothing is known there")
        code = Exit.INFRASTRUCTURE
    if gate.load.rules:
        with open_store(gate.store_url) as store:
            load_id = loads.add(store, gate.path.name, gate.text, policy_sha256(gate, definitions), int(code), body)
        tell(f"kept: {load_id}, which `qualgate runs --loads` shows")
    if code != Exit.APPROVE:
        raise typer.Exit(code)
