"""Benchmark `demo`: what the first command of the README costs, and how its verdicts hold over evalset seeds."""

from __future__ import annotations

import json
import sys
import tempfile
from importlib.resources import files
from pathlib import Path
from typing import Any

from qualgate.errors import UsageError
from tests.benchmarks.goals import DEMO
from tests.benchmarks.memory import measure
from tests.benchmarks.shape import told

SEEDS = 20
DECIDED = (0, 10, 11, 12)
FIRST_SEED = 1000  # the shipped sets are made with another


def run(quick: bool) -> dict[str, Any]:
    """One whole demo, then int8 and int2 on evalsets of 20 (quick: 2) other seeds. About 40 (quick: 8) minutes."""
    with tempfile.TemporaryDirectory() as folder:
        whole = measure([sys.executable, "-m", "qualgate", "demo", "--out", str(Path(folder) / "demo"), "--json"])
    decided = whole.exit in DECIDED  # a demo that failed early is neither quick nor small
    drawn = 2 if quick else SEEDS
    seeds = range(FIRST_SEED, FIRST_SEED + drawn)
    rounds = [_judge(seed) for seed in told("demo", seeds, lambda seed: f"evalset seed {seed}")]
    approved = sum(r["verdicts"]["int8"] == "approve" for r in rounds)
    blocked = sum(r["verdicts"]["int2-g32"] == "block" for r in rounds)
    few = f"{drawn} of {SEEDS} seeds" if drawn < SEEDS else None
    return DEMO.result(
        rounds=[
            {"demo": {"exit": whole.exit, "seconds": whole.seconds, "rss": whole.peak_rss, "pss": whole.peak_pss}},
            *rounds,
        ],
        rows=[
            DEMO.row("demo_seconds", whole.seconds, met=decided and whole.seconds <= 360),
            DEMO.row("demo_memory", whole.peak_pss, met=decided and whole.peak_pss <= 2**31),
            DEMO.row("int8_approves", approved, met=drawn - approved <= SEEDS - 19, few=few),
            DEMO.row("int2_blocks", blocked, met=blocked == drawn, few=few),
        ],
    )


def _judge(seed: int) -> dict[str, Any]:
    """The demo's policy on evalsets made with another seed, for the two variants the goals speak of."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        made = measure([sys.executable, "-m", "qualgate_evalsets.making.generate", "--seed", str(seed), "--out", name])
        assert made.exit == 0, f"evalsets of seed {seed} could not be made"
        text = (files("qualgate.refmodel") / "demo.yaml").read_text(encoding="utf-8")
        kept = [line for line in text.splitlines() if not line.startswith(("  int4-g32:", "  mxfp4:"))]
        sets = ["arithmetic", "json_extract", "tool_calls", "code", "transform", "reformat", "grounded_qa"]
        kept = [
            f"evalsets: [{', '.join(f'./{item}.yaml' for item in sets)}]" if line.startswith("evalsets:") else line
            for line in kept
        ]
        (folder / "gate.yaml").write_text("\n".join(kept) + "\n", encoding="utf-8")
        done = measure([sys.executable, "-m", "qualgate", "run", str(folder / "gate.yaml"), "--json"])
        if done.exit not in DECIDED:
            raise UsageError(f"the run on evalset seed {seed} decided nothing (exit {done.exit}): {done.output[-500:]}")
        report = json.loads(done.output)
        return {
            "seed": seed,
            "exit": done.exit,
            "seconds": done.seconds,
            "verdicts": {verdict["variant"]: verdict["word"] for verdict in report["verdicts"]},
            "reasons": {verdict["variant"]: verdict["reasons"][0] for verdict in report["verdicts"]},
        }
