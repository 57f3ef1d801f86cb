"""`python -m qualgate_kernels.bench`: packed products on this machine's GPU; `--all`: every kernel of ours.

Whoever has a GPU for ten minutes gets the whole table, or goes on later. Needs torch and triton alone.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from qualgate_kernels import bench_parts, bench_products
from qualgate_kernels.availability import unavailable
from qualgate_kernels.bench_parts import Machine, Sizes, Work
from qualgate_kernels.bench_table import Part, fill

FILE = Path("gpu.json")  # where figures lie if nothing is said
MINUTES = 9.0
CANNOT = 13  # exit code: there is no GPU, a part failed, or time ran out before the last
FORMS = ("int4 g128", "int4 g128 asym", "int8", "mxfp4")


def command(path: Path, minutes: float, *, quick: bool) -> int:
    """The exit code: 0 for a whole table, whatever it says."""
    if because := missing():
        print(f"{because}. Nothing was measured: run it where there is an NVIDIA GPU.", file=sys.stderr)
        return CANNOT
    try:
        found = run(path, minutes, quick=quick)
    except ValueError as error:
        print(error, file=sys.stderr)
        return CANNOT
    print(json.dumps(found["goals"], indent=2))
    for id, why in found["failed"].items():
        print(f"{id} failed: {why}", file=sys.stderr)
    if found["left"]:
        print(f"{len(found['left'])} parts are left. The same command goes on: {path}", file=sys.stderr)
    return CANNOT if found["left"] else 0


def missing() -> str:
    """Why nothing can be measured here, or ""."""
    return unavailable(torch.device("cuda")) if torch.cuda.is_available() else "no GPU is there"


def run(path: Path, minutes: float, *, quick: bool) -> dict[str, Any]:
    """The table at `path` filled for so many minutes, and its "goals". ValueError as `bench_table.fill` has it."""
    parts = [*_products(quick), *bench_parts.parts(_machine(), Sizes(rounds=3 if quick else 5))]
    return told(parts, path, _about(quick), minutes, time.monotonic)


def told(
    parts: Sequence[Part], path: Path, about: Mapping[str, Any], minutes: float, clock: Callable[[], float]
) -> dict[str, Any]:
    """As `fill`, checks of all kernels first, with the goals that follow from the figures."""
    ordered = sorted(parts, key=lambda part: not part.id.startswith("check "))
    found = fill(ordered, path, about, seconds=60 * minutes, clock=clock)
    return found | {"goals": goals(found["figures"], found["failed"])}


def goals(figures: Mapping[str, Any], failed: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of packed products and those of `bench_parts`."""
    shapes = [f"products {name}" for name in bench_products.SHAPES]
    if all(id in figures for id in shapes):
        rows = bench_products._goals([one for id in shapes for one in figures[id]])
    else:
        rows = [bench_products._row(id, reason="not measured") for id in bench_products.GOALS]
    others = bench_parts.rows_of(figures, failed)
    if others[0]["met"] is not True:  # a wrong product is no speed, and one that was not tried may be wrong
        rows = [row | {"met": None if others[0]["met"] is None else False} for row in rows]
    return [*rows, *others]


def _products(quick: bool) -> list[Part]:
    checks = [Part(f"check {form}", lambda before, form=form: bench_products._checks(form)) for form in FORMS]
    timed = bench_products._timed
    figures = [
        Part(f"products {name}", lambda before, name=name, shape=shape: timed(name, shape, quick))
        for name, shape in bench_products.SHAPES.items()
    ]
    return checks + figures


def _about(quick: bool) -> dict[str, Any]:
    """What figures of one table have in common: the device, the versions, and every file of these kernels."""
    import triton

    here = sorted(Path(__file__).parent.glob("*.py"))
    programs = hashlib.sha256(b"".join(file.read_bytes() for file in here)).hexdigest()
    return {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "python": platform.python_version(), "programs": programs, "quick": quick,
    }  # fmt: skip


def _machine() -> Machine:
    return Machine(torch.device("cuda"), bench_products._seconds, _captured, bench_products._copy_bandwidth)


def _captured(work: Work) -> Work:
    """As one CUDA graph, after a warm-up that compiles."""
    return bench_products._graph([lambda x: work()], torch.empty(0)).replay


def main() -> None:
    """The command line; the result is JSON."""
    parser = argparse.ArgumentParser(prog="python -m qualgate_kernels.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, the same rows")
    parser.add_argument("--json", type=Path, help=f"write the result here too; of --all the file that grows ({FILE})")
    parser.add_argument("--all", action="store_true", help="every figure, checks first; goes on where it was cut off")
    parser.add_argument("--minutes", type=float, default=MINUTES, help="of --all: begin nothing after so many (9)")
    chosen = parser.parse_args()
    if chosen.all:
        raise SystemExit(command(chosen.json or FILE, chosen.minutes, quick=chosen.quick))
    result = json.dumps(bench_products.run(chosen.quick), indent=2)
    if chosen.json:
        chosen.json.write_text(result + "\n")
    print(result)


if __name__ == "__main__":
    main()
