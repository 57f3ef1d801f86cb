"""Benchmark `gpu`: every kernel of ours on this machine's GPU, for nine minutes; the same command goes on later.

Whoever has a GPU for ten minutes gets the whole table, or what was measured by then. Needs torch and triton alone.
"""

from __future__ import annotations

import hashlib
import platform
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

import qualgate_kernels
from qualgate.errors import InfrastructureError
from qualgate_kernels.availability import unavailable
from tests.benchmarks import gpu_parts, gpu_products
from tests.benchmarks.goals import GPU
from tests.benchmarks.gpu_parts import Machine, Sizes, Work
from tests.benchmarks.gpu_table import Part, fill

FILE = Path("gpu.json")  # where figures lie until all are there
MINUTES = 9.0
FORMS = ("int4 g128", "int4 g128 asym", "int8", "mxfp4")


def run(quick: bool) -> dict[str, Any]:
    """The table in the file here, filled for so many minutes. InfrastructureError without a GPU, UsageError where the
    file there is another device's."""
    if because := unavailable(torch.device("cuda")) if torch.cuda.is_available() else "no GPU is there":
        raise InfrastructureError(f"{because}. Nothing was measured: run it where there is an NVIDIA GPU.")
    parts = [*_products(quick), *gpu_parts.parts(_machine(), Sizes(rounds=3 if quick else 5))]
    parts.sort(key=lambda part: not part.id.startswith("check "))
    found = fill(parts, FILE, _about(quick), seconds=60 * MINUTES, clock=time.monotonic)
    if found["left"]:
        print(f"{len(found['left'])} parts are left. The same command goes on: {FILE}", file=sys.stderr)
    rows = goals(found["figures"], found["failed"])
    return GPU.result(rounds=[found["figures"]], rows=rows) | {key: found[key] for key in ("about", "failed", "left")}


def goals(figures: Mapping[str, Any], failed: Mapping[str, str]) -> list[dict[str, Any]]:
    """The rows of packed products and those of `gpu_parts`."""
    shapes = [f"products {name}" for name in gpu_products.SHAPES]
    if all(id in figures for id in shapes):
        rows = gpu_products._goals([one for id in shapes for one in figures[id]])
    else:
        rows = [gpu_products._row(id, reason="not measured") for id in gpu_products.GOALS]
    others = gpu_parts.rows_of(figures, failed)
    if others[0]["met"] is not True:  # a wrong product is no speed, and one that was not tried may be wrong
        rows = [row | {"met": None if others[0]["met"] is None else False} for row in rows]
    return [*rows, *others]


def _products(quick: bool) -> list[Part]:
    checks = [Part(f"check {form}", lambda before, form=form: gpu_products._checks(form)) for form in FORMS]
    timed = gpu_products._timed
    figures = [
        Part(f"products {name}", lambda before, name=name, shape=shape: timed(name, shape, quick))
        for name, shape in gpu_products.SHAPES.items()
    ]
    return checks + figures


def _about(quick: bool) -> dict[str, Any]:
    """What figures of one table have in common: the device, the versions, and every file of these kernels."""
    import triton

    kernels, here = Path(qualgate_kernels.__file__).parent, Path(__file__).parent
    files = [*sorted(kernels.glob("*.py")), *sorted(here.glob("gpu*.py"))]
    programs = hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()
    return {
        "device": torch.cuda.get_device_name(), "torch": torch.__version__, "triton": triton.__version__,
        "python": platform.python_version(), "programs": programs, "quick": quick,
    }  # fmt: skip


def _machine() -> Machine:
    return Machine(torch.device("cuda"), gpu_products._seconds, _captured, gpu_products._copy_bandwidth)


def _captured(work: Work) -> Work:
    """As one CUDA graph, after a warm-up that compiles."""
    return gpu_products._graph([lambda x: work()], torch.empty(0)).replay
