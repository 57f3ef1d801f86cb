"""Benchmarks of speed and cost: one a file, each a function `run(quick) -> dict` of the one shape

{"bench", "device", "versions", "rounds": [...], "goals": [{"id", "goal", "measured", "spread", "met"}]}

A goal that was not run has `met: null` and a reason. Machines are noisy: ratios of interleaved rounds are quoted.
The proofs and attacks of `tests/verification` are run by the same command where they are (`checkout`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from qualgate.bench import checkout
from qualgate.bench.goals import SPEED
from qualgate.bench.shape import Benchmark
from qualgate.errors import UsageError


def benchmarks() -> dict[str, Benchmark]:
    """Name → benchmark: those of speed, and in a checkout the proofs."""
    proofs = checkout.proofs()
    return SPEED if proofs is None else SPEED | proofs.PROOFS


def listing() -> list[str]:
    """A line for each benchmark; in a wheel one more, which says where the proofs are."""
    found = benchmarks()
    width = max(map(len, found))
    lines = [f"{name:<{width}}  {one.about}" for name, one in found.items()]
    return lines if len(found) > len(SPEED) else [*lines, f"{', '.join(checkout.PROOFS)}: {checkout.NOT_HERE}"]


def run_benchmark(name: str, *, quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """Run benchmark `name`. only: rows to measure, with what is measured beside them; all others are without a verdict.

    UsageError for an unknown benchmark or row, for rows of a benchmark that has no parts, and for a proof in a wheel.
    """
    there = benchmarks()
    if name not in there:
        if name in checkout.PROOFS:
            raise UsageError(f"{name} is a proof: {checkout.NOT_HERE.replace('NAME', name)}.")
        raise UsageError(f"no benchmark {name!r}; there are: {', '.join(there)}.")
    if only and not there[name].in_parts:
        in_parts = [one.name for one in there.values() if one.in_parts]
        raise UsageError(f"--only goes with {' and '.join(in_parts)}; {name} is measured as a whole.")
    if unknown := [id for id in only if id not in there[name].goals]:
        raise UsageError(f"{name} has no row {unknown[0]!r}; there are: {', '.join(there[name].goals)}.")
    proofs = checkout.proofs()
    run = _run_of(name) if proofs is None or name in SPEED else proofs.run_of(name)
    return run(quick, only) if only else run(quick)


def _run_of(name: str) -> Callable[..., dict[str, Any]]:
    """Only the module of the benchmark that is asked for is loaded: some load torch."""
    match name:
        case "decode":
            from qualgate.bench.decode import run
        case "speculation":
            from qualgate.bench.speculation import run
        case "commands":
            from qualgate.bench.commands import run
        case "demo":
            from qualgate.bench.demo import run
        case "gpu":
            from qualgate.bench.gpu import run
        case "kernels-cpu":
            from qualgate.bench.kernels_cpu import run
        case "drift":
            from qualgate.bench.drift import run
        case _:
            raise AssertionError(f"{name} has no module")
    return run
