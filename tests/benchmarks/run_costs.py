"""Benchmark `run-costs`: where the processor seconds of `qualgate run` go that are not the model's passes.

The gate file is a user's first: a real chat model in bfloat16 (`first_hour.chat_model`), int4 made of it on the spot,
and the first turns of MT-Bench as cases. A processor that others share takes longer for the same work, so that the sum
is also told in units of work that never changes: importing transformers' models in a process of its own.
"""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qualgate.errors import InfrastructureError
from tests.benchmarks.goals import RUN_COSTS
from tests.benchmarks.shape import told
from tests.verification.first_hour.chat_model import chat_model
from tests.verification.references.agreement import NoReference
from tests.verification.shared import DATA

CASES, TOKENS = 40, 64  # x 2 arms
QUICK_CASES, QUICK_TOKENS = 4, 8
MOST = 2.5  # of the unit; half of what it was before
UNIT = "import transformers.modeling_utils, transformers.models.llama.modeling_llama"
ANSWERED = (0, 10, 11, 12)


def run(quick: bool) -> dict[str, Any]:
    """Whole runs, each in a fresh folder; quick: one, of few cases and short answers."""
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        try:
            model, why = chat_model(work), "" if (DATA / "mt_bench").is_dir() else "no cases of MT-Bench"
        except NoReference as reason:
            model, why = work, str(reason)
        if why:
            return RUN_COSTS.result(rounds=[], rows=[RUN_COSTS.not_run(id, why) for id in RUN_COSTS.goals])
        size = (QUICK_CASES, QUICK_TOKENS) if quick else (CASES, TOKENS)
        rounds = [
            measured(model, work / f"round-{at}", *size) for at in told("run-costs", range(1 if quick else 3), str)
        ]
    shares = [one["not_model"] / one["unit"] for one in rounds]
    middle = statistics.median(shares)
    row = RUN_COSTS.row("not_model", middle, met=middle <= MOST, spread=[min(shares), max(shares)])
    return RUN_COSTS.result(rounds=rounds, rows=[row], few="one round of few cases" if quick else None)


def measured(model: Path, folder: Path, cases: int, tokens: int) -> dict[str, Any]:
    """Processor seconds of one run: by process and part, of all but the model's passes, and of the unit."""
    gate, parts_folder = _gate_file(model, folder, cases, tokens), folder / "parts"
    parts_folder.mkdir()
    whole, done = _spent([sys.executable, "-m", "tests.benchmarks.measured_run", str(parts_folder), str(gate)])
    if done.returncode not in ANSWERED:
        raise InfrastructureError(f"qualgate run ended with {done.returncode}: {done.stderr[-2000:]}")
    processes = [json.loads(file.read_text()) for file in sorted(parts_folder.glob("*.json"))]
    parts = defaultdict[str, float](float)
    for part, seconds in (pair for process in processes for pair in process.items()):
        parts[part] += seconds
    parts["rest"] += whole - sum(parts.values())  # of processes that told nothing, and of the end of all
    unit, _ = _spent([sys.executable, "-c", UNIT])
    rounded = {part: round(seconds, 2) for part, seconds in parts.items()}
    return {"whole": whole, "not_model": whole - parts["model"], "unit": unit, "parts": rounded, "processes": processes}


def _spent(command: Sequence[str]) -> tuple[float, subprocess.CompletedProcess[str]]:
    """Processor seconds of a command and of all that it waited for."""

    def spent() -> float:
        usage = resource.getrusage(resource.RUSAGE_CHILDREN)
        return usage.ru_utime + usage.ru_stime

    before = spent()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return spent() - before, done


def _gate_file(model: Path, folder: Path, cases: int, tokens: int) -> Path:
    folder.mkdir()
    lines = (DATA / "mt_bench" / "question.jsonl").read_text(encoding="utf-8").splitlines()[:cases]
    rows = [
        {
            "id": f"turn-{at}",
            "messages": [{"role": "user", "content": json.loads(line)["turns"][0]}],
            "max_new_tokens": tokens,
            "answer": "A",
        }
        for at, line in enumerate(lines)
    ]
    (folder / "turns.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    (folder / "turns.yaml").write_text('name: turns\nversion: "1"\nmetrics: [exact_match]\n', encoding="utf-8")
    gate = folder / "gate.yaml"
    gate.write_text(
        f"version: 1\nbaseline: {{model: {model}, dtype: bfloat16}}\n"
        "variants:\n  int4: {quantize: {method: int4, group_size: 32}}\nevalsets: [./turns.yaml]\n"
        "gate:\n  rules:\n    - {metric: exact_match, evalset: turns, max_drop: 0.05}\n"
        "    - {metric: drift.kl_mean, max: 0.5, tier: advisory}\nstore: sqlite:///qualgate.db\n",
        encoding="utf-8",
    )
    return gate
