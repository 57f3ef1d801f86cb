"""Rows `planted.*`: defects and sound arms in real runs of the reference model, judged by what their store holds.

A run is a user's: gate file, plan, engine, scores, store. Only the pool is in this process, so that a worker can be
made to do one thing wrong (`mutants`). The verdicts are then taken from the store alone, where names tell nothing.

Whether a mutant is a defect is known for certain where an invariant is broken. Else the truth comes from the other
evalset seeds, never from the run that is judged: a defect where for some rule the loss there exceeds `max_drop` by two
standard errors, sound where for every rule it stays as far below; a mutant of neither kind is left out, a rule fixed
before the first run. The mutants at odd places of each cause are held out: nothing was looked up in their runs while
the rules for causes were written.

    python -m qualgate.bench.planted_runs [--quick] [--kept FOLDER]    goes on with what FOLDER holds
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from math import sqrt
from pathlib import Path
from typing import Any
from unittest.mock import patch

from qualgate import run as main_path
from qualgate.bench.mutants import ANSWERS, CALLS, DEFECTS, KV, PATH, PLAIN, SOUND, Mutant, Outcome, Worker, folder_of
from qualgate.config import GateFile, load_gate_file
from qualgate.gate.outcomes import Assumed, PlannedSet
from qualgate.gate.planner import plan_policy
from qualgate.metrics import METRICS
from qualgate.plan import artifacts_folder
from qualgate.records import TWIN, ArmEvidence, ArmSpec, Job, Policy, Rule, RunEvidence, Verdict
from qualgate.store import runs
from qualgate.store.database import open_store
from qualgate.workers.unit import WorkerSettings

SEEDS = (7101, 7102)  # of the evalsets; the shipped ones are made with another
CASES = 40  # a set; what the planner makes of it: `declared`
TOGETHER = 18  # mutants that share a run, at most
AT_MOST, AT_LEAST = 0.05, 0.90
GATE_FILE = """\
version: 1
baseline: {model: reference, dtype: bfloat16}
variants:
  same: {model: reference, dtype: bfloat16}
evalsets: [SETS]
gate:
  alpha: 0.05
  rules:
    - {metric: exact_match, max_drop: 0.15}
    - {metric: FORM, max_drop: 0.15}
store: sqlite:///STORE
workers: {backend: local, count: 1, devices: cpu}
"""
FORM: dict[tuple[str, ...], str] = {ANSWERS: "json.valid", CALLS: "tool_call.valid"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Mutants that share a run, and so a baseline."""

    name: str
    seed: int
    sets: tuple[str, ...]
    mutants: tuple[tuple[str, Mutant], ...]  # by name


def held_out(name: str) -> bool:
    """Decided before the first run: every second mutant of the list."""
    return int(name[1:]) % 2 == 1


def batches(named: dict[str, Mutant], seeds: Sequence[int]) -> Iterator[Batch]:
    """Those that the rules for causes were written with first; each batch with all seeds before the next."""
    for held in (False, True):
        for sets in (ANSWERS, CALLS):
            chosen = [(n, m) for n, m in named.items() if m.sets == sets and held_out(n) == held]
            count = -(-len(chosen) // TOGETHER)
            for part in range(count):
                for seed in seeds:
                    name = f"{sets[0]}-{'held-out' if held else 'development'}-{part}-{seed}"
                    yield Batch(name=name, seed=seed, sets=sets, mutants=tuple(chosen[part::count]))


def all_mutants() -> dict[str, Mutant]:
    """By names that say nothing of what is planted."""
    return {f"m{number:03}": mutant for number, mutant in enumerate((*DEFECTS, *SOUND))}


# ------------------------------------------------------------------------------------------------------ a real run


def made_gate(batch: Batch, folder: Path, store: Path, cases: int) -> GateFile:
    """Evalsets, models and gate file as a user would have them."""
    from qualgate_evalsets.generate import write
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(PATH / "tokenizer.json"))
    for name in batch.sets:
        write(name, batch.seed, cases, folder, tokenizer)
    text = GATE_FILE.replace("SETS", ", ".join(f"./{name}.yaml" for name in batch.sets))
    text = text.replace("FORM", FORM[batch.sets]).replace("STORE", str(store))
    (folder / "gate.yaml").write_text(text, encoding="utf-8")
    gate, arms = load_gate_file(folder / "gate.yaml"), []
    for name, mutant in batch.mutants:
        arm = ArmSpec(
            name=name,
            model=str(folder_of(mutant, folder / "models" / name)),
            dtype=mutant.dtype,  # type: ignore[arg-type]
            quantize=mutant.recipe,
        )
        arms.append(arm)
        if mutant.witness:
            arms.append(
                replace(arm, name=name + mutant.witness, kernels="torch" if mutant.witness == TWIN else "fused")
            )
    return replace(gate, variants=tuple(arms))


@contextmanager
def _pool_of(mutants: dict[str, Mutant]) -> Iterator[None]:
    """The pool's place is taken by one worker in this process, which serves each arm as its mutant says."""

    def run_jobs(jobs: Sequence[Job], settings: WorkerSettings, *other: Any, **options: Any) -> Iterator[Outcome]:
        worker = Worker(settings)
        for job in jobs:
            name, at, part = job.arm.name.partition("@")
            mutant = mutants.get(name)
            serve = Worker.run if mutant is None else mutant.serve
            if mutant is not None and at + part in (KV, PLAIN):
                serve = mutant.serve_witness or Worker.run
            if worker.arm is not None and worker.arm.spec != job.arm:
                worker.arm = None
            yield serve(worker, job)

    with patch.object(main_path, "run_jobs", run_jobs):
        yield


def planted_run(batch: Batch, store: Path, cases: int) -> None:
    """Run the batch into `store`; begun earlier, it is gone on with."""
    done = store.with_suffix(".done")
    if done.exists():
        return
    folder = Path(tempfile.mkdtemp(prefix="qualgate-planted-"))
    try:
        with _pool_of(dict(batch.mutants)):
            main_path.run(made_gate(batch, folder, store, cases))
        done.touch()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(artifacts_folder(f"sqlite:///{store}"), ignore_errors=True)


def judged(batch: Batch, store: Path) -> list[dict[str, Any]]:
    """From the store alone, a line a mutant: what was planted, what the gate says, what each rule's metric lost."""
    found = main_path.decide_again(url := f"sqlite:///{store}", None, None)
    with open_store(url, create=False) as opened:
        evidence, policy = runs.evidence(opened, found.run_id), runs.policy(opened, found.run_id)
    verdicts, arms = {v.variant: v for v in found.verdicts}, {arm.name: arm for arm in evidence.variants}
    return [
        {"name": name, "what": mutant.what, "planted": mutant.cause, "broken": mutant.broken, "seed": batch.seed,
         "held_out": held_out(name), **_said(verdicts[name]), "losses": losses(evidence, arms[name], policy.rules)}
        for name, mutant in batch.mutants
    ]  # fmt: skip


def _said(verdict: Verdict) -> dict[str, Any]:
    compared = any(one.n for one in verdict.comparisons)
    return {"word": verdict.word, "cause": verdict.cause, "compared": compared, "reasons": list(verdict.reasons[:3])}


def losses(evidence: RunEvidence, arm: ArmEvidence, rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """What each rule's metric lost, by sums that shares nothing with the gate's: n, how many were lost and gained."""
    theirs = {(u.key.evalset, u.key.case_id): u.values for u in arm.units if u.status == "done"}
    ours = {(u.key.evalset, u.key.case_id): u.values for u in evidence.baseline.units}
    found = []
    for rule in rules:
        assert METRICS[rule.metric].kind == "quality"
        change = [
            (theirs[key].get(rule.metric) or 0.0) - (values.get(rule.metric) or 0.0)
            for key, values in ours.items()
            if key in theirs
        ]
        found.append({"rule": rule.id, "max_drop": rule.max_drop, "n": len(change),
                      "lost": sum(c < 0 for c in change), "gained": sum(c > 0 for c in change)})  # fmt: skip
    return found


# -------------------------------------------------------------------------------------------------- truth, and rates


def truths(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Each line's truth: "defect", "sound", or "" where the other seeds' runs cannot tell."""
    return [
        _truth(line, [o for o in lines if o["name"] == line["name"] and o["seed"] != line["seed"]]) for line in lines
    ]


def _truth(line: dict[str, Any], others: Sequence[dict[str, Any]]) -> str:
    if line["broken"]:
        return "defect"
    sides = [_side([other["losses"][rule] for other in others]) for rule in range(len(line["losses"]))]
    if "over" in sides:
        return "defect"
    return "sound" if sides and set(sides) == {"under"} else ""


def _side(seen: Sequence[dict[str, Any]]) -> str:
    n = sum(one["n"] for one in seen)
    if not n:
        return ""
    lost, gained = sum(one["lost"] for one in seen), sum(one["gained"] for one in seen)
    loss = (lost - gained) / n
    error = sqrt(max((lost + gained) / n - loss**2, 1 / n) / n)
    limit = seen[0]["max_drop"]
    return "over" if loss - 2 * error > limit else "under" if loss + 2 * error < limit else ""


def rates(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """False approvals among the defects, false blocks among the sound, right causes among the refused defects.

    A cause counts where the gate found something: it blocked, or it could not take the evidence (incomplete, or not the
    same question to both). A defect on which it had too few cases to decide has shown nothing that could have a cause.
    """
    told = list(zip(lines, truths(lines), strict=True))
    defects = [line for line, truth in told if truth == "defect"]
    sound = [line for line, truth in told if truth == "sound"]
    found = [
        o for o in defects if o["word"] in ("block", "invalid") or (o["word"] == "undecided" and not o["compared"])
    ]
    right = [line for line in found if line["cause"] == line["planted"]]
    wrong = [f"{o['what']}: {o['cause'] or 'none'}, not {o['planted']}" for o in found if o["cause"] != o["planted"]]
    words = [line["word"] for line in sound]
    return {
        "defects": len(defects),
        "approved": sum(line["word"] == "approve" for line in defects),
        "undecided": len(defects) - len(found) - sum(line["word"] == "approve" for line in defects),
        "sound": len(sound),
        "blocked": words.count("block"),
        "sound_approved": words.count("approve"),
        "left_out": len(lines) - len(defects) - len(sound),
        "found": len(found),
        "cause_right": len(right),
        "wrong_causes": sorted(set(wrong)),
    }  # fmt: skip


def declared(cases: int) -> dict[str, float]:
    """P(approve | identical) that the planner foretells at so many cases: by its own assumptions, and
    where two cases of a hundred disagree and the baseline is right on 97 %, an assumption of this benchmark's.
    """
    sets = [PlannedSet(name=ANSWERS[0], metrics=("exact_match", FORM[ANSWERS]), cases=cases)]
    policy = Policy(rules=tuple(Rule(metric=metric, max_drop=0.15) for metric in sets[0].metrics))
    chosen = Assumed(default_disagreement=0.02, default_baseline=0.97, source="chosen here")
    return {
        "planner's own assumptions": plan_policy(sets, policy, search=False).approve,
        "chosen here": plan_policy(sets, policy, chosen, search=False).approve,
    }


# ------------------------------------------------------------------------------------------------------------- rows


def collect(named: dict[str, Mutant], seeds: Sequence[int], cases: int, kept: Path) -> list[dict[str, Any]]:
    """Every batch's lines. kept: the folder of the stores; runs that are in it are not run again."""
    kept.mkdir(parents=True, exist_ok=True)
    lines = []
    for batch in batches(named, seeds):
        planted_run(batch, store := kept / f"{batch.name}.db", cases)
        lines += judged(batch, store)
    return lines


def measure(quick: bool, kept: Path | None = None) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds: a line for each mutant and seed, rows `planted.*`). Some minutes of one core; quick: a few mutants."""
    named = {name: mutant for name, mutant in all_mutants().items() if not quick or int(name[1:]) % 15 == 0}
    with tempfile.TemporaryDirectory() as folder:
        lines = collect(named, SEEDS, CASES, kept or Path(folder))
    return [line | {"truth": truth} for line, truth in zip(lines, truths(lines), strict=True)], rows(lines)


def rows(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found, held = rates(lines), rates([line for line in lines if line["held_out"]])
    both = {**found, "held_out": held, "cases": CASES, "planned_approval": declared(CASES)}

    def row(id: str, count: int, of: int, met: bool, enough: int) -> dict[str, Any]:
        row = {"id": id, "measured": {"rate": count / of if of else None, **both}, "spread": None, "met": met}
        short = f"{of} are too few to be held to the goal ({enough} needed)"
        return row if of >= enough or not met else row | {"met": None, "reason": short}

    passed, blocked = found["approved"], found["blocked"]
    return [
        row("planted.false_approve", passed, found["defects"], passed <= AT_MOST * found["defects"], 100),
        row("planted.false_block", blocked, found["sound"], blocked <= AT_MOST * found["sound"], 100),
        row("planted.cause", held["cause_right"], held["found"], held["cause_right"] >= AT_LEAST * held["found"], 40),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="Defects planted in real runs.")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--kept", type=Path, help="folder for the stores; runs in it are not run again")
    arguments = parser.parse_args()
    rounds, found = measure(arguments.quick, arguments.kept)
    print(json.dumps({"rounds": rounds, "rows": found}, indent=1))


if __name__ == "__main__":
    main()
