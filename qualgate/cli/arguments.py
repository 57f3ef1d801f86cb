"""Arguments shared by several commands, and the store and run that they name."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Annotated

import typer

from qualgate.errors import UsageError

GateFileArgument = Annotated[Path, typer.Argument(metavar="GATE.yaml", help="the gate file")]
OptionalGateFile = Annotated[Path | None, typer.Argument(metavar="[GATE.yaml]", help="the gate file")]
StoreOption = Annotated[str | None, typer.Option("--store", help="URL of the store, if no gate file is given")]
RunOption = Annotated[str | None, typer.Option("--run", help="id of a run; the newest by default")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON on stdout")]
WarnOnlyOption = Annotated[
    bool, typer.Option("--warn-only", help="print the verdict's exit code, but exit with 0; errors still fail")
]


def store_url(from_gate_file: str | None, option: str | None) -> str:
    """Return the store's URL from the gate file or --store, not both; by default `qualgate.db` in this folder."""
    if from_gate_file is not None and option is not None:
        raise UsageError("give either a gate file or --store, not both.")
    from qualgate.store.address import DEFAULT, placed

    return from_gate_file or placed(DEFAULT if option is None else option, Path.cwd())


def store_url_of(gate_file: Path | None, option: str | None) -> str:
    """Return the store's URL as `store_url` does, from a gate file that is not yet loaded."""
    from qualgate.config import load_gate_file

    return store_url(load_gate_file(gate_file, files=False).store_url if gate_file is not None else None, option)


def stored_run(gate_file: Path | None, store: str | None, run_id: str | None) -> tuple[str, str | None]:
    """Return the store's URL and the run: with a gate file, the newest run of its variants and evalsets."""
    if gate_file is None or run_id is not None:
        return store_url_of(gate_file, store), run_id
    from qualgate.config import load_gate_file
    from qualgate.pipeline.stored import newest_run_of
    from qualgate.store.database import open_store

    gate = load_gate_file(gate_file, files=False)
    url = store_url(gate.store_url, store)
    with open_store(url, create=False) as opened:
        return url, newest_run_of(opened, gate)


def arm_files(values: list[str]) -> dict[str, Path]:
    """Parse the NAME=FILE values of --arm. UsageError for another form, or a repeated name."""
    arms: dict[str, Path] = {}
    for value in values:
        name, equals, path = value.partition("=")
        if not (name and equals and path) or name in arms:
            raise UsageError(f"--arm {value}: give each arm once, as NAME=FILE of score rows")
        arms[name] = Path(path)
    return arms


def own_name() -> str:
    """Return how to type this command again, since a virtual environment may not be on the PATH."""
    called = sys.argv[0]
    if called.endswith("__main__.py"):
        return f"{os.path.relpath(sys.executable)} -m qualgate"
    return "qualgate" if shutil.which("qualgate") == os.path.abspath(called) else os.path.relpath(called)
