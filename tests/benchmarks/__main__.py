"""A benchmark, or a whole proof of `tests.verification`, by its name.

python -m tests.benchmarks [NAME [--quick] [--only ROW] [--json FILE]]       without NAME: a line for each that there is
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

from qualgate.errors import QualgateError, UsageError
from tests import verification
from tests.benchmarks.goals import SPEED

ALL = SPEED | verification.PROOFS


def run_of(name: str) -> Callable[..., dict[str, Any]]:
    """Only the module of the benchmark that is asked for is loaded: some load torch."""
    if name in SPEED:
        return import_module(f"tests.benchmarks.{name.replace('-', '_')}").run
    return verification.run_of(name)


def run_benchmark(name: str, *, quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """Run benchmark `name`. only: rows to measure, with what is measured beside them; all others are without a verdict.

    UsageError for an unknown benchmark or row, and for rows of a benchmark that has no parts.
    """
    if name not in ALL:
        raise UsageError(f"no benchmark {name!r}; there are: {', '.join(ALL)}.")
    if only and not ALL[name].in_parts:
        in_parts = [each.name for each in ALL.values() if each.in_parts]
        raise UsageError(f"--only goes with {' and '.join(in_parts)}; {name} is measured as a whole.")
    if unknown := [id for id in only if id not in ALL[name].goals]:
        raise UsageError(f"{name} has no row {unknown[0]!r}; there are: {', '.join(ALL[name].goals)}.")
    return run_of(name)(quick, only) if only else run_of(name)(quick)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description="Measure speed and cost.")
    parser.add_argument("name", nargs="?", metavar="NAME", help="a benchmark or a proof; without one all are listed")
    parser.add_argument("--quick", action="store_true", help="fewer rounds, every goal")
    parser.add_argument("--only", action="append", default=[], metavar="ROW", help="a row of one that has parts; again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the result to this file")
    chosen = parser.parse_args(arguments)
    if chosen.name is None:
        print(*(f"{name:<{max(map(len, ALL))}}  {each.about}" for name, each in ALL.items()), sep="\n")
        return 0
    try:
        result = json.dumps(run_benchmark(chosen.name, quick=chosen.quick, only=chosen.only), indent=2)
    except QualgateError as error:
        print(error, file=sys.stderr)
        return error.exit
    if chosen.json:
        chosen.json.write_text(f"{result}\n", encoding="utf-8")
    else:
        print(result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
