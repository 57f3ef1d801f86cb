"""Benchmarks: one a file, each a function `run(quick) -> dict` of the one shape

{"bench", "device", "versions", "rounds": [...], "goals": [{"id", "goal", "measured", "spread", "met"}]}

A goal that was not run has `met: null` and a reason. Machines are noisy: ratios of interleaved rounds are quoted.
"""

from __future__ import annotations

import importlib
from collections.abc import Sequence
from typing import Any

from qualgate.bench.shape import GOALS
from qualgate.errors import UsageError

BENCHMARKS = {
    "generate": "our step loop against transformers.generate at its best batch size, same tokens",
    "commands": "seconds a user waits: --help, gate over 20,000 and 100,000 stored scores, the dashboard",
    "determinism-report": "the same evidence judged and reported 100 times: the same bytes in every format",
    "decisions": "the gate's words: errors and power of its tests, peers' rules, faulted and planted evidence",
    "demo": "the demo's seconds and memory, and its verdicts over evalset seeds",
    "kernels-gpu": "fused GPU kernels: share of the memory's bandwidth, against torch bf16 and int4, gemlite, Marlin",
    "static": "every GPU kernel compiled for sm_80, sm_90, sm_100: spills, shared memory, instructions per weight",
    "quantize": "KL of every calibrated method against round-to-nearest on the same grid",
    "kernels-cpu": "the C kernels against torch's int4 operator, bf16 linear and a plain read, two threads",
    "scoring": "scorers against the field's references and hostile answers, and their speed on one core",
    "drift": "two models' distributions compared without logits, against full logits through transformers",
}


IN_PARTS = ("decisions", "scoring")  # the long ones; some of their rows can be asked for alone


def run_benchmark(name: str, *, quick: bool, only: Sequence[str] = ()) -> dict[str, Any]:
    """Run benchmark `name`. only: rows to measure, with what is measured beside them; all others are without a verdict.

    UsageError for an unknown benchmark or row, and for rows of a benchmark that has no parts.
    """
    if name not in BENCHMARKS:
        raise UsageError(f"no benchmark {name!r}; there are: {', '.join(BENCHMARKS)}.")
    if only and name not in IN_PARTS:
        raise UsageError(f"--only goes with {' and '.join(IN_PARTS)}; {name} is measured as a whole.")
    if unknown := [id for id in only if id not in GOALS[name]]:
        raise UsageError(f"{name} has no row {unknown[0]!r}; there are: {', '.join(GOALS[name])}.")
    rooms = {"decisions": "tests.verification.verdicts", "determinism-report": "tests.verification.verdicts",
             "scoring": "tests.verification.references"}  # fmt: skip
    run = importlib.import_module(f"{rooms.get(name, 'qualgate.bench')}.{name.replace('-', '_')}").run
    return run(quick, only) if only else run(quick)
