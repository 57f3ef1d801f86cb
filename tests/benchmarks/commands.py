"""Benchmark `commands`: the seconds a user waits for what should be at once."""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from qualgate.records import (
    ArmFootprint,
    ArmIdentity,
    ArmSpec,
    Case,
    Completion,
    Drift,
    Evalset,
    Job,
    JobResult,
    Plan,
    Policy,
    Prompt,
    QuantizeRecipe,
    Rule,
    Score,
    UnitKey,
)
from tests.benchmarks.goals import COMMANDS
from tests.benchmarks.shape import told

METRICS = ("exact_match", "json.valid", "json.schema", "numeric")
SETS, CASES = 5, 200  # x 5 arms x 4 metrics = 20,000 scores
MANY_CASES = 1000  # likewise: 100,000 scores
MOST_BYTES = 500e6
POSITIONS = 40


def run(quick: bool) -> dict[str, Any]:
    """`--help`, `gate` over 20,000 and 100,000 scores, the dashboard's first page: whole processes, several rounds."""
    rounds: list[dict[str, float]] = []
    with tempfile.TemporaryDirectory() as name:
        url, large = (f"sqlite:///{Path(name) / file}" for file in ("bench.db", "large.db"))
        scores, many = fill(url), fill(large, MANY_CASES)
        of_files = score_files(Path(name))
        for _ in told("commands", range(2 if quick else 5), lambda done: f"round {done + 1}"):
            rounds.append(
                {
                    "help": _seconds("--help"),
                    "gate": _seconds("gate", "--store", url, "--json"),
                    **_gate_cost("gate_100k", "--store", large),
                    **_gate_cost("gate_files_100k", *of_files),
                    "page": _first_page_seconds(url),
                }
            )

    def row(id: str, key: str, limit: float, met: bool = True) -> dict[str, Any]:
        taken = [one[key] for one in rounds]
        middle = statistics.median(taken)
        return COMMANDS.row(id, middle, spread=[min(taken), max(taken)], met=met and middle <= limit)

    assert (scores, many) == (20_000, 100_000)

    def large_row(key: str) -> dict[str, Any]:
        largest, seconds = max(one[f"{key}_bytes"] for one in rounds), [one[f"{key}_cpu"] for one in rounds]
        return row(key, key, 5.0, met=largest < MOST_BYTES) | {"peak_bytes": largest, "processor_seconds": seconds}

    return COMMANDS.result(
        rounds=rounds,
        rows=[
            row("help", "help", 0.5),
            row("gate_20000_scores", "gate", 3.0),
            large_row("gate_100k"),
            large_row("gate_files_100k"),
            row("dashboard_first_page", "page", 2.0),
        ],
    )


def fill(url: str, cases: int = CASES) -> int:
    """A store with one complete run of random answers (seeded), so many cases a set; the number of scores in it."""
    plan, results = answered(cases)
    store_run(url, plan, results)
    return sum(len(scores) for _, scored in results for scores in scored.values())


def score_files(folder: Path, cases: int = 100_000) -> tuple[str, ...]:
    """Arguments of `gate` over two files of so many score rows, as `qualgate score` writes them (seeded)."""
    rng = random.Random(0)
    for side, wrong in (("baseline", 0.1), ("variant", 0.11)):
        with (folder / f"{side}.jsonl").open("w", encoding="utf-8") as file:
            for case in range(cases):
                right = random.Random(case).random() + 0.02 * rng.random() > wrong
                row = {"id": f"case-{case:06}", "metric": "exact_match", "value": float(right), "verdict": right,
                       "error_type": "" if right else "differs", "extracted": f"answer {case}", "reason": "",
                       "case_hash": f"{case:064x}", "scorer": "exact_match/1", "finish_reason": "stop",
                       "model": side}  # fmt: skip
                file.write(json.dumps(row) + "\n")
    rules = "[{metric: exact_match, max_drop: 0.02}, {metric: exact_match, per: evalset, max_drop: 0.05}]"
    (folder / "gate.yaml").write_text(
        f"version: 1\nbaseline: {{model: ./m}}\nvariants: {{v: {{model: ./n}}}}\nevalsets: [./set.yaml]\n"
        f"gate: {{rules: {rules}}}\n"
    )
    sides = ("--baseline-scores", str(folder / "baseline.jsonl"), "--variant-scores", str(folder / "variant.jsonl"))
    return str(folder / "gate.yaml"), *sides


Scored = dict[UnitKey, tuple[Score, ...]]


def answered(cases: int) -> tuple[Plan, list[tuple[JobResult, Scored]]]:
    """A plan and, for each of its jobs, what it answered."""
    plan, rng, results = _plan(cases), random.Random(0), []
    for job in plan.jobs:
        completions = tuple(_completion(prompt, rng) for prompt in job.prompts)
        scored = {completion.key: _scores(completion, rng) for completion in completions}
        results.append((_result(job, plan, completions, rng), scored))
    return plan, results


def store_run(url: str, plan: Plan, results: Sequence[tuple[JobResult, Scored]]) -> None:
    """Record the jobs in this order, decide, finish."""
    from qualgate.gate.decide import decide
    from qualgate.store import runs
    from qualgate.store.database import open_store

    with open_store(url) as store:
        record = runs.begin(store, plan)
        for result, scored in results:
            runs.record(store, record.run_id, result, scored)
        decided = decide(runs.evidence(store, record.run_id), plan.policy)
        runs.finish(store, record.run_id, decided.verdicts, complete=True)


def _plan(cases: int) -> Plan:
    evalsets = tuple(
        Evalset(
            name=f"set{number}",
            version="1",
            sha256=f"{number:064d}",
            metrics=METRICS,
            cases=tuple(Case(evalset=f"set{number}", body=_case(number, case)) for case in range(cases)),
        )
        for number in range(SETS)
    )
    recipes = {"int8": 0, "int4": 32, "int2": 32, "mxfp4": 32}
    arms = (
        ArmSpec(name="baseline", model="./model"),
        *(
            ArmSpec(name=method, model="./model", quantize=QuantizeRecipe(method=method, group_size=size))  # type: ignore[arg-type]
            for method, size in recipes.items()
        ),
    )
    jobs = tuple(
        Job(
            index=number,
            arm=arm,
            prompts=tuple(_prompt(arm, case) for case in item.cases),
            artifact="",
            drafted=True,
        )
        for arm in arms
        for number, item in enumerate(evalsets)
    )
    rules = (
        Rule(metric="exact_match", max_drop=0.02),
        *(Rule(metric=metric, scope="evalset", max_drop=0.05) for metric in METRICS),
        Rule(metric="drift.kl_mean", max=0.05, tier="advisory"),
    )
    return Plan(
        key="0" * 64,
        gate_file="",
        policy=Policy(rules=rules),
        arms=arms,
        identities={
            arm.name: ArmIdentity(weights=arm.name, config="c", tokenizer="t", template="p", sampling="s", engine="e")
            for arm in arms
        },
        evalsets=evalsets,
        jobs=jobs,
        artifacts="",
    )


def _case(number: int, case: int) -> dict[str, Any]:
    return {"id": f"case-{case:04d}", "prompt": f"{number} {case}", "max_new_tokens": 64, "answer": "1"}


def _prompt(arm: ArmSpec, case: Case) -> Prompt:
    key = UnitKey(arm.name, case.evalset, case.id)
    return Prompt(key=key, case_hash=case.hash, token_ids=(1,), max_new_tokens=64)


def _completion(prompt: Prompt, rng: random.Random) -> Completion:
    return Completion(
        key=prompt.key, case_hash=prompt.case_hash,
        token_ids=tuple(rng.randrange(768) for _ in range(POSITIONS)),
        text="".join(rng.choice('abcdef {}":') for _ in range(120)),
        finish_reason="eos", prompt_tokens=150, ttft=rng.random(), e2e=1 + rng.random(),
        logprobs=tuple(-rng.random() for _ in range(POSITIONS)),
        margins=tuple(10 * rng.random() for _ in range(POSITIONS)),
    )  # fmt: skip


def _scores(completion: Completion, rng: random.Random) -> tuple[Score, ...]:
    wrong = {"baseline": 0.1, "int8": 0.11, "int4": 0.13, "mxfp4": 0.16, "int2": 0.6}[completion.key.arm]
    hard = random.Random(completion.key.evalset + completion.key.case_id).random()  # the same for every arm
    right = hard + 0.05 * rng.random() > wrong
    # Of no version at hand: the texts are random, and `gate` would score them again.
    return tuple(Score(metric=m, value=float(right), verdict=right, scorer=f"{m}/0") for m in METRICS)


def _result(job: Job, plan: Plan, completions: tuple[Completion, ...], rng: random.Random) -> JobResult:
    drifts = tuple(
        Drift(
            key=one.key, kl=tuple(0.02 * rng.random() for _ in range(POSITIONS)),
            top1_agreement=0.975, first_divergence=None, length_ratio=1.0,
        )
        for one in completions if not job.arm.is_baseline
    )  # fmt: skip
    return JobResult(
        index=job.index,
        arm=job.arm.name,
        identity=plan.identities[job.arm.name],
        footprint=ArmFootprint(bytes_on_disk=1, bytes_in_memory=1, quantized_bytes=0, effective_bits=16.0),
        completions=completions,
        drifts=drifts,
    )


def _seconds(*arguments: str) -> float:
    start = time.perf_counter()
    done = subprocess.run([sys.executable, "-m", "qualgate", *arguments], capture_output=True, check=False)
    seconds = time.perf_counter() - start
    assert done.returncode in (0, 10, 12), done.stderr
    return seconds


# The kernel's own high-water mark: what wait4 tells of a child begins at the size of the process that forked it.
_COST = """
import sys, time
from qualgate.cli import main
try:
    main()
finally:
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    print(int(status["VmHWM"].split()[0]) * 1024, time.process_time(), file=sys.stderr)
"""


def _gate_cost(key: str, *arguments: str) -> dict[str, float]:
    """Seconds, processor seconds and peak resident bytes of `gate` as a process of its own."""
    start = time.perf_counter()
    command = [sys.executable, "-c", _COST, "gate", *arguments, "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    assert done.returncode in (0, 10, 12), done.stderr
    size, processor = done.stderr.split()[-2:]
    return {key: seconds, f"{key}_cpu": float(processor), f"{key}_bytes": float(size)}


def _first_page_seconds(url: str) -> float:
    """The first page's script in a process that never ran it, streamlit itself imported: what a server's first visitor
    waits for. Without the browser's own time."""
    code = (
        "import pathlib, time, qualgate_app; from streamlit.testing.v1 import AppTest; start = time.perf_counter();"
        "main = pathlib.Path(list(qualgate_app.__path__)[0]) / 'main.py';"
        "page = AppTest.from_file(str(main), default_timeout=60).run();"
        "assert not page.exception, page.exception; print(time.perf_counter() - start)"
    )
    environment = {**os.environ, "QUALGATE_STORE": url}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environment)
    return float(done.stdout.split()[-1])
