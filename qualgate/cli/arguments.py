"""Arguments that several commands share, and the store and the run that they name."""

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
StoreOption = Annotated[str | None, typer.Option("--store", help="the store's URL, when there is no gate file")]
RunOption = Annotated[str | None, typer.Option("--run", help="a run's id; the newest by default")]
JsonOption = Annotated[bool, typer.Option("--json", help="print JSON on stdout")]
WarnOnlyOption = Annotated[
    bool, typer.Option("--warn-only", help="say the verdict's true exit code and exit 0; errors still fail")
]


def store_url(from_gate_file: str | None, option: str | None) -> str:
    """Of the gate file or of --store, not of both; `qualgate.db` here where neither says."""
    if from_gate_file is not None and option is not None:
        raise UsageError("give either a gate file or --store, not both.")
    from qualgate.store.address import DEFAULT, placed

    return from_gate_file or placed(DEFAULT if option is None else option, Path.cwd())


def store_url_of(gate_file: Path | None, option: str | None) -> str:
    """The same, of a gate file that is not read yet."""
    from qualgate.config import load_gate_file

    return store_url(load_gate_file(gate_file, files=False).store_url if gate_file is not None else None, option)


def stored_run(gate_file: Path | None, store: str | None, run_id: str | None) -> tuple[str, str | None]:
    """The store's URL and the run: with a gate file, the newest run of that file's variants and evalsets."""
    if gate_file is None or run_id is not None:
        return store_url_of(gate_file, store), run_id
    from qualgate.config import load_gate_file
    from qualgate.pipeline.stored import newest_run_of
    from qualgate.store.database import open_store

    gate = load_gate_file(gate_file, files=False)
    url = store_url(gate.store_url, store)
    with open_store(url, create=False) as opened:
        return url, newest_run_of(opened, gate)


def four_arm_files(given: list[str]) -> dict[str, Path]:
    """NAME=FILE, several times. UsageError for what is not that, and for a name that comes twice."""
    arms: dict[str, Path] = {}
    for one in given:
        name, equals, path = one.partition("=")
        if not (name and equals and path) or name in arms:
            raise UsageError(f"--arm {one}: give each arm once, as NAME=FILE of score rows")
        arms[name] = Path(path)
    if len(arms) != 3:
        raise UsageError(f"--arm is given for each of the three arms beside the baseline, found {len(arms)}")
    return arms


def own_name() -> str:
    """How this very command can be typed again: a virtual environment's need not be on the PATH."""
    called = sys.argv[0]
    if called.endswith("__main__.py"):
        return f"{os.path.relpath(sys.executable)} -m qualgate"
    return "qualgate" if shutil.which("qualgate") == os.path.abspath(called) else os.path.relpath(called)
