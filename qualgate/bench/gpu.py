"""Benchmark `gpu`: `python -m qualgate_kernels.bench --all`; the same command goes on with its file in this folder."""

from __future__ import annotations

from typing import Any

from qualgate.bench.goals import GPU
from qualgate.errors import InfrastructureError, UsageError
from qualgate_kernels import bench


def run(quick: bool) -> dict[str, Any]:
    """InfrastructureError without a GPU, UsageError where the file there is another device's."""
    if because := bench.missing():
        raise InfrastructureError(f"{because}. Nothing was measured: run it where there is an NVIDIA GPU.")
    try:
        found = bench.run(bench.FILE, bench.MINUTES, quick=quick)
    except ValueError as error:
        raise UsageError(str(error).replace("Name another file with --json", "Move it away")) from None
    return GPU.result(rounds=[found["figures"]], rows=found["goals"]) | {
        key: found[key] for key in ("about", "failed", "left")
    }
