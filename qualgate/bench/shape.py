"""The one shape of a benchmark's result, and of what it says while it runs."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

T = TypeVar("T")

SANDBOX = {
    "escape.1": "every outcome of S1-S17 as required, one sandbox at a time",
    "escape.8": "every outcome of S1-S17 as required, 8 sandboxes at once",
    "escape.32": "every outcome of S1-S17 as required, 32 sandboxes at once",
    "escape.mutants": "10,000 mutants of hostile programs change nothing outside, learn no secret, stop nothing (S16)",
    "sandbox.overhead": "<= 40 ms a sample over a plain Python that runs the same program and its test",
    "forgeries": "0 of >= 30 forgeries pass, against every kind of test",
    "humaneval.reference": "every reference solution passes",
    "humaneval.broken": "every solution that returns something else fails, mutants as when run beside their tests",
    "mbpp.reference": "every reference solution passes",
}
STORED = {
    "drift.llama34": "all 34 values as the reference prints them, every line of every seeded set",
    "drift.bytes": "<= 1/50 of llama.cpp's logits file, reference model and 128,256 tokens",
    "drift.certified": "certified KL error <= 1e-4 nats at every position, int8 and int4, and the truth within it",
}

GOALS: dict[str, dict[str, str]] = {
    "generate": {"generate_speed": ">= 1.0x transformers.generate at its best batch size"},
    "commands": {
        "help": "<= 0.5 s",
        "gate_20000_scores": "<= 3 s",
        "gate_100k": "< 5 s and < 500 MB over 100,000 stored scores",
        "dashboard_first_page": "<= 2 s",
    },
    "determinism-report": {
        "deterministic": "100 of 100: other worker order, hash seed, locale, time zone, thread count; same bytes",
    },
    "decisions": {
        "errors": "P(approve) <= alpha at loss = max_drop, P(block) <= alpha at losses <= max_drop, whole policy: "
        "exact, clustered cases by draws; fewer than 20 clusters undecided",
        "power": "P(approve | identical), P(block | 2 x max_drop) within 2 points of the best exact paired test",
        "peers.cases": ">= 0.9 x 2p(1-p)/disagreement times our cases for every unpaired rule at our errors and "
        "margin, disagreement >= 1.5 margins; below, reported",
        "peers.false_pass": "every rule's passes of a true 3-point loss, n = 1,319, as known, within simulation error",
        "early.identical": ">= 40 % of a fixed paired test's cases saved on average at power .95, identical variants",
        "early.twice": ">= 40 % of a fixed paired test's cases saved on average at power .95, at 2 x max_drop",
        "early.worst": "the worst truth's cases over the fixed test's, reported",
        "planner.rates": "predicted rates of 50 policies, 14 of them on tags, tasks, repeats or relative losses, "
        "within 2 points of simulation",
        "planner.decidable": ">= 95 % of 50 policies reach P(approve | identical) >= .8 after the printed change",
        "peeking": "100,000 adversarial schedules: P(crossing) <= alpha",
        "fail_closed.cases": ">= 60 faulted evidences, policies and score files: 0 exit with 0",
        "fail_closed.mutations": ">= 500 single and paired mutations of what the gate is given: 0 exit with 0",
        "defects.false_approve": "<= 5 % of >= 100 defects planted in evidence records approved",
        "defects.false_block": "<= 5 % of sound variants in evidence records blocked",
        "planted.false_approve": "<= 5 % of >= 100 defects planted in real runs approved",
        "planted.false_block": "<= 5 % of >= 100 sound arms of real runs blocked at the declared n",
        "planted.cause": ">= 90 % of the defects found in real runs, mutants held out: the cause named right; of all "
        "planted, reported",
        "interaction.power": "P(found) >= 0.9 at <= 2,500 cases, both 2 points worse, <= 11 % of cases changed",
        "interaction.silent": "P(found) <= alpha where there is no interaction",
        "aa.block_rate": "P(block) of the baseline against itself <= alpha",
        "deterministic": "100 of 100: other worker order, hash seed, locale, time zone, thread count; same bytes",
        "gate_100k": "< 5 s and < 500 MB over 100,000 stored scores",
    },
    "demo": {
        "demo_seconds": "<= 360 s after installation, on two idle cores",
        "demo_memory": "<= 2 GiB, PSS of the process tree",
        "int8_approves": ">= 19 of 20 evalset seeds",
        "int2_blocks": "20 of 20 evalset seeds",
    },
    "kernels-gpu": {
        "int4_8192_bandwidth": ">= 0.75 of the copy bandwidth of the run, 8192 x 8192 int4 g128, 1 to 16 rows",
        "int4_28672_bandwidth": ">= 0.75 of the copy bandwidth of the run, 28672 x 4096 int4 g128, 1 to 16 rows",
        "int4_8192_bf16": ">= 3.0x torch bf16, 8192 x 8192 int4 g128, 1 to 16 rows",
        "int4_28672_bf16": ">= 3.0x torch bf16, 28672 x 4096 int4 g128, 1 to 16 rows",
        "int4_8192_best": ">= 1.0x the best of torch int4, gemlite, Marlin, 8192 x 8192 int4 g128, 1 to 16 rows",
        "int4_28672_best": ">= 1.0x the best of torch int4, gemlite, Marlin, 28672 x 4096 int4 g128, 1 to 16 rows",
        "verify_cost": "time(8 rows) / time(1 row) <= 1.15, both shapes",
        "invariance_tax": "<= 5 % over the same kernels split as suits the number of rows best",
    },
    "static": {
        "compiles": "every kernel in every configuration, for sm_80, sm_90 and sm_100",
        "no_spills": "0 instructions that move a register to local memory or back",
        "products": "matrix products in every loop that is there for them",
        "tensor_memory": "within the 512 columns of sm_100",
        "shared_memory": "within what the target's blocks may ask for, in bytes",
        "int4_instructions": "<= 3.6 instructions per int4 weight in the main loop, sm_90, 16 tokens",
    },
    "quantize": dict.fromkeys(
        (
            "gptq_int4",
            "gptq_int4_act_order",
            "gptq_int4_static",
            "gptq_int4_asym",
            "gptq_int3",
            "gptq_int2",
            "gptq_int8",
            "awq_int4",
            "awq_int3",
            "smoothquant_w8a8",
            "nvfp4_calibrated",
        ),
        "KL below round-to-nearest on the same grid, with every calibration draw",
    ),
    "kernels-cpu": {
        "int4_rows_32_512": ">= 5x torch's eager int4 operator, K = N of 1024 to 4096, every shape",
        "int4_rows_64_up": "<= 1.25x the time of torch bf16 linear, 64 to 512 rows, every shape",
        "int4_few_rows": ">= 2.5x torch bf16 linear, 1 to 4 rows, 64 MiB packed, 4 copies rotated",
        "mxfp4_few_rows": ">= 2.5x torch bf16 linear, 1 to 4 rows, 64 MiB packed, 4 copies rotated",
        "int4_bandwidth": ">= 70 % of the read bandwidth of the same rounds, 1 to 4 rows",
        "mxfp4_bandwidth": ">= 70 % of the read bandwidth of the same rounds, 1 to 4 rows",
    },
    "scoring": {
        "bfcl_mutations": "100 % same verdict and error type as rules written independently, BFCL's rows mutated",
        "bfcl_fuzz": "100 % same verdict and error type, 100,000 made calls against rules written independently",
        "schema_suite": "100 % of the JSON-Schema-Test-Suite's required part, draft 2020-12",
        "gsm8k_filters": "100 % same extraction and verdict as lm-eval's two filters, GSM8K rows and real completions",
        "filters_fuzz": "100 % same extraction and verdict as lm-eval's filters and exact_match, 100,000 made answers",
        "match_fuzz": "100 % same numbers, F1, verdicts, 100,000 made answers: numeric and SQuAD's F1 against rules "
        "written independently, DROP's F1 against lm-eval's",
        "ifeval_fuzz": "100 % same verdicts as lm-eval's own checkers, strict and loose, 25,000 made answers",
        "hostile_outputs": "0 crashes, 0 hangs over 1 s, 10,000 seeded mutants to every scorer",
        "tool_call_speed": ">= 100,000 simple tool-call checks/s on one core, compat mode, calls already decoded",
        "schema_speed": ">= 20,000 schema checks/s on one core",
        "lm_eval_speed": ">= 5x lm-eval's scoring of the same log",
    }
    | SANDBOX
    | STORED,
    "drift": {
        f"cpu_{shape}_{what}": limit
        for shape in ("32k_float32", "32k_bfloat16", "150k_float32", "150k_bfloat16")
        for what, limit in (
            ("time", ">= 2x faster than full logits through transformers, 4096 rows, two threads"),
            ("memory", ">= 20x less peak memory above weights and hidden states"),
        )
    }
    | {
        "gpu_speed": ">= 600 TFLOP/s on an H200, 8192 x 4096 x 128256, two heads",
        "gpu_ratio": ">= 2.5x faster than the unfused torch pair",
        "gpu_memory": ">= 50x less peak memory than the unfused torch pair",
    },
}
"""benchmark → goal id → goal. A row that was not run stays, with `met: null` and the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one row of the goal table measured. `rounds`: one entry for each cell or policy."""

    id: str
    measured: Any
    spread: Any
    met: bool
    rounds: list[dict[str, Any]]


def described(name: str, *, rounds: list[dict[str, Any]], goals: list[dict[str, Any]]) -> dict[str, Any]:
    """The result of benchmark `name`, with the device and the versions it ran on. Every goal of its table is there."""
    assert tuple(row["id"] for row in goals) == tuple(GOALS[name]), f"{name}: its goals are {', '.join(GOALS[name])}"
    versions = {
        package: importlib.metadata.version(package)
        for package in ("qualgate", "torch", "transformers", "numpy", "scipy")
    }
    versions["python"] = platform.python_version()
    return {"bench": name, "device": device(), "versions": versions, "rounds": rounds, "goals": goals}


def goal(
    bench: str, id: str, measured: Any, *, met: bool | None, spread: Any = None, unmet_because: str | None = None
) -> dict[str, Any]:
    """One row of the goal table. `unmet_because` (not run, too few rounds) makes `met` null."""
    row = {"id": id, "goal": GOALS[bench][id], "measured": measured, "spread": spread, "met": met}
    return row if unmet_because is None else row | {"met": None, "reason": unmet_because}


def told(bench: str, parts: Sequence[T], name: Callable[[T], object] = str) -> Iterator[T]:
    """The parts, one by one; a line on stderr says how many are done, after how many seconds, and which runs now."""
    start = time.monotonic()

    def say(done: int, more: str = "") -> None:
        seconds = time.monotonic() - start
        print(f"{bench}: {done} of {len(parts)} done, {seconds:,.0f} s{more}", file=sys.stderr, flush=True)

    for done, part in enumerate(parts):
        say(done, f"; now {name(part)}")
        yield part
    say(len(parts))


def device() -> str:
    """The processor and how many of its cores this process may use."""
    try:
        found = re.search(r"model name\s*:\s*(.+)", Path("/proc/cpuinfo").read_text())
    except OSError:
        found = None
    return f"{found.group(1) if found else platform.processor()}, {len(os.sched_getaffinity(0))} cores"
