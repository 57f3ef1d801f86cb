"""Benchmark `static`: every shipped GPU kernel compiled for GPUs that are not there, its machine code read."""

from __future__ import annotations

import importlib.util
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor
from typing import Any

from tests.verification.goals import STATIC


def run(quick: bool) -> dict[str, Any]:
    """quick: one or two configurations a kernel. The whole table takes some minutes of every core."""
    reason = "triton is not installed" if importlib.util.find_spec("triton") is None else ""
    if os.environ.get("TRITON_INTERPRET", "0") == "1":
        reason = "TRITON_INTERPRET is set: Triton cannot compile"
    if reason:
        return STATIC.result(
            rounds=[],
            rows=[STATIC.not_run(id, reason) for id in STATIC.goals],
        )
    from tests.verification.machine_code import static_gate

    cores = len(os.sched_getaffinity(0))
    with ProcessPoolExecutor(cores, multiprocessing.get_context("spawn")) as pool:
        jobs = [
            (quick, number, target)
            for target in static_gate.TARGETS
            for number, _ in enumerate(static_gate.entries(target, quick=quick))
        ]
        readings = list(pool.map(static_gate.read_numbered, jobs))
    rounds = [static_gate.as_row(reading) for reading in readings]
    few = f"{len(rounds)} readings" if quick else None
    int4 = [row["per_weight"] for row in rounds if row["counts"]]

    def row(id: str, measured: Any, fault: str, spread: Any = None) -> dict[str, Any]:
        met = not any(fault in said for reading in rounds for said in reading["faults"])
        return STATIC.row(id, measured, spread=spread, met=met, few=few)

    return STATIC.result(
        rounds=rounds,
        rows=[
            row("compiles", sum(not r["failed"] for r in rounds), "does not compile"),
            row("no_spills", max((r["spills"] for r in rounds), default=None), "spills"),
            row("products", sum(r["loop"] > 0 for r in rounds), "matrix products"),
            row("tensor_memory", max((r["tensor_memory"] for r in rounds), default=None), "tensor memory"),
            row("shared_memory", max((r["shared"] for r in rounds), default=None), "shared memory"),
            row("int4_instructions", max(int4), "instructions per weight", [min(int4), max(int4)]),
        ],
    )
