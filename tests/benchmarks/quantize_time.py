"""Benchmark `quantize-time`: processor seconds of GPTQ and of its coverage, beside llm-compressor.

Both libraries get the same recipe, model and token ids, each in a process of its own; loading and writing count.
Processor seconds are compared, since other processes change them less than wall seconds. Environment variables:
QUALGATE_BENCH_MODEL, a model folder instead of the shipped model; QUALGATE_BENCH_BACKENDS, the folder in which
`qualgate quantize --setup-backend llmcompressor --backend-dir` made llm-compressor's environment.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from pydoc_data.topics import topics
from resource import RUSAGE_CHILDREN, getrusage
from typing import Any

from qualgate import refmodel
from qualgate.engine.prompts import Renderer
from qualgate.quant.model_files import read_files
from qualgate.records import Case
from tests.benchmarks.goals import QUANTIZE_TIME

SAMPLES, TOKENS = 128, 512
EVALSETS = ("tool_calls", "grounded_qa")
RECIPE = ("--method", "gptq", "--bits", "4", "--group-size", "64", "--calibration", "./samples.yaml")


def run(quick: bool) -> dict[str, Any]:
    """One run of each on 128 (quick: 16) samples of 512 tokens. An hour for a model of 135 million parameters."""
    model = Path(os.environ.get("QUALGATE_BENCH_MODEL", refmodel.PATH)).resolve()
    backends = os.environ.get("QUALGATE_BENCH_BACKENDS")
    where = ("--backend-dir", str(Path(backends).resolve())) if backends else ()
    count = 16 if quick else SAMPLES
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "samples.yaml").write_text("name: samples\nversion: 1\nkind: calibration\n")
        (folder / "samples.jsonl").write_text("".join(f"{json.dumps(body)}\n" for body in samples(model, count)))
        own = _measured(folder, "quantize", str(model), *RECIPE, "--out", "own", "--devices", "cpu")
        covering = _measured(folder, "evalset", "coverage", "./samples.yaml", *EVALSETS, "--model", str(model))
        other = _measured(
            folder, "quantize", str(model), *RECIPE, "--out", "other", "--devices", "cpu", "--backend", "llmcompressor",
            *where,
        )  # fmt: skip
    rows = []
    for id, cost, most in (("gptq", own, 1.3), ("coverage", covering, 0.2)):
        if failed := next((each["error"] for each in (cost, other) if each["error"]), ""):
            rows.append(QUANTIZE_TIME.not_run(id, failed))
        else:
            ratio = cost["processor_seconds"] / other["processor_seconds"]
            rows.append(QUANTIZE_TIME.row(id, ratio, met=ratio <= most))
    rounds = [{"samples": count, "quantize": own, "coverage": covering, "llmcompressor": other}]
    return QUANTIZE_TIME.result(rounds=rounds, rows=rows, few=f"{count} of {SAMPLES} samples" if quick else None)


def samples(model: Path, count: int) -> list[dict[str, Any]]:
    """Return `count` cases that `model` reads as TOKENS tokens or a few fewer, cut from Python's language reference."""
    renderer = Renderer(read_files(model))
    tokenizer = renderer.tokenizer
    ids = tokenizer("\n\n".join(topics[key] for key in sorted(topics)), add_special_tokens=False)["input_ids"]
    bodies: list[dict[str, Any]] = []
    for start in range(0, count * TOKENS, TOKENS):
        length, excess = TOKENS, 1
        body: dict[str, Any] = {}
        while excess > 0:
            text = str(tokenizer.decode(ids[start : start + length])).strip()
            body = {"id": f"sample-{len(bodies)}", "messages": [{"role": "user", "content": text}]}
            excess = len(renderer.render([Case(evalset="samples", body=body)])[0]) - TOKENS
            length -= max(excess, 0)
        bodies.append(body)
    return bodies


def _measured(folder: Path, *words: str) -> dict[str, Any]:
    """Run a command of qualgate in `folder`; return its seconds, and its last line of stderr if it failed."""
    start, before = time.perf_counter(), getrusage(RUSAGE_CHILDREN)
    done = subprocess.run([sys.executable, "-m", "qualgate", *words], cwd=folder, capture_output=True, text=True)
    after = getrusage(RUSAGE_CHILDREN)
    return {
        "processor_seconds": after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime,
        "seconds": time.perf_counter() - start,
        "error": (done.stderr.strip().splitlines() or [f"exit {done.returncode}"])[-1] if done.returncode else "",
    }
