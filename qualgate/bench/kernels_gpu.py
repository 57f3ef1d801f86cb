"""Benchmark `kernels-gpu`: the fused GPU kernels beside torch's and others' (`python -m qualgate_kernels.bench`)."""

from __future__ import annotations

from typing import Any

from qualgate.bench.goals import KERNELS_GPU
from qualgate_kernels import bench


def run(quick: bool) -> dict[str, Any]:
    """The kernels' own benchmark as one of ours, with its device, checks and configurations beside."""
    found = bench.run(quick)
    result = KERNELS_GPU.result(rounds=found["rounds"], rows=found["goals"])
    result["versions"] |= found["versions"]
    return result | {key: found[key] for key in ("device", "checks", "configuration_table")}
