"""Rows `planted.*`: defects and sound arms in real runs of the reference model, judged by what their store holds.

A run is a user's: gate file, plan, engine, scores, store. Only the pool is in this process, so that a worker can be
made to do one thing wrong (`mutants`). The verdicts are then taken from the store alone, where names tell nothing. A
set has as many cases as the planner declares for the policy (`declared`), and margins are 5, 7 and 10 points.

Whether a mutant is a defect is known for certain where an invariant is broken. Else the truth comes from runs of their
own on other evalset seeds: a defect where for some rule the loss there exceeds `max_drop` by two standard errors, sound
where for every rule it stays as far below; an arm of neither kind is left out before it is judged, a rule fixed before
the first run. Mutants of graded strength (`graded`) are judged under every margin that their truth is known for, where
they lose no more than `NEAR` margins; the gross ones and those that change nothing under the widest margin.

The mutants at odd places of each cause are held out: nothing was looked up in their runs while the rules for causes
were written.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from math import sqrt
from pathlib import Path
from typing import Any
from unittest.mock import patch

from qualgate import run as main_path
from qualgate.config import GateFile, load_gate_file
from qualgate.gate.planning.planned_sets import PlannedSet
from qualgate.gate.planning.planner import plan_policy
from qualgate.pipeline import checks, generating
from qualgate.pipeline.stored import decide_again
from qualgate.records import TWIN, ArmEvidence, ArmSpec, Job, Policy, Rule, RunEvidence, Verdict
from qualgate.records.metrics import METRICS
from qualgate.refmodel import PATH
from qualgate.stats.intervals import binomial_lower, binomial_upper
from qualgate.store import runs
from qualgate.store.address import artifacts_folder
from qualgate.store.database import open_store
from qualgate.workers.unit import WorkerSettings
from tests.verification.verdicts.graded import GRADED
from tests.verification.verdicts.mutants import DEFECTS, SOUND
from tests.verification.verdicts.plantings.mutant import ANSWERS, CALLS, KV, PLAIN, Mutant, Outcome, Worker, folder_of

# Evalset seeds; the shipped sets are made with another, and the strengths of the graded were looked for with 9001.
TRUTH_SEEDS, SEEDS = (8101, 8102), (7101, 7102, 7103, 7104)
TRUTH_CASES = {True: 200, False: 50}  # a set and seed, of graded mutants and of others
MARGINS = (0.05, 0.07, 0.10)
NEAR = 3.0  # graded mutants that lose more margins than this are no near thing
TOGETHER = 20  # mutants that share a run, at most
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
    - {metric: exact_match, max_drop: MARGIN}
    - {metric: FORM, max_drop: MARGIN}
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
    margin: float
    cases: int
    mutants: tuple[tuple[str, Mutant], ...]  # by name


def held_out(name: str) -> bool:
    """Decided before the first run: every second mutant of the list."""
    return int(name[1:]) % 2 == 1


def all_mutants() -> dict[str, Mutant]:
    """By names that say nothing of what is planted."""
    return {f"m{number:03}": mutant for number, mutant in enumerate((*DEFECTS, *SOUND, *GRADED))}


def is_graded(name: str) -> bool:
    return int(name[1:]) >= len(DEFECTS) + len(SOUND)


@cache
def declared(margin: float) -> tuple[int, float, float]:
    """Cases a set that the planner asks for before anything was run, P(approve | identical) and P(block | twice the
    margin) that it then foretells.
    """
    metrics = ("exact_match", FORM[ANSWERS])
    policy = Policy(rules=tuple(Rule(metric=metric, max_drop=margin) for metric in metrics))
    found = plan_policy([PlannedSet(name=ANSWERS[0], metrics=metrics, cases=40)], policy).changes
    (grown,) = (change for change in found if change.kind == "more cases")
    return grown.cases[ANSWERS[0]], grown.approve, grown.block


def _in_parts(name: str, chosen: Sequence[tuple[str, Mutant]], seed: int, margin: float, cases: int) -> Iterator[Batch]:
    """Batches of at most `TOGETHER` of these mutants, each of one kind of evalset."""
    for sets in (ANSWERS, CALLS):
        mine = [(n, m) for n, m in chosen if m.sets == sets]
        count = -(-len(mine) // TOGETHER)
        for part in range(count):
            yield Batch(name=f"{name}-{sets[0]}-{part}-{seed}", seed=seed, sets=sets, margin=margin, cases=cases,
                        mutants=tuple(mine[part::count]))  # fmt: skip


def truth_batches(named: dict[str, Mutant], cases: dict[bool, int]) -> Iterator[Batch]:
    """Runs that tell what a mutant loses, without witnesses. One seed is enough for what loses much or nothing."""
    for graded in (True, False):
        chosen = [(n, replace(m, witness="")) for n, m in named.items() if is_graded(n) == graded and not m.broken]
        for seed in TRUTH_SEEDS if graded else TRUTH_SEEDS[:1]:
            yield from _in_parts(f"truth-{'graded' if graded else 'plain'}", chosen, seed, MARGINS[-1], cases[graded])


def _turns(near: bool, margin: float) -> tuple[int, ...]:
    """In which of four seeds an arm's turn comes, by its place in the list."""
    if near:
        return (0,) if margin == MARGINS[0] else (0, 2)  # the smallest margin takes the most cases
    return (0,) if margin == MARGINS[-1] else ()


def judged_batches(
    named: dict[str, Mutant],
    lost: dict[str, list[dict[str, Any]]],
    seeds: Sequence[int],
    margins: Sequence[float] = MARGINS,
) -> Iterator[Batch]:
    """Runs that are judged, the cheap ones first. lost: by name, what its truth's runs say of each rule."""
    for margin in reversed(margins):
        for place, seed in enumerate(seeds):
            chosen = []
            for name, mutant in named.items():
                told = truth(mutant, found := lost.get(name, ()), margin)
                near = is_graded(name) and all(one["loss"] <= NEAR * margin for one in found)
                turn = (int(name[1:]) + MARGINS.index(margin) - place) % len(seeds)
                if told and turn in _turns(near, margin):
                    # A cause is asked of defects alone, and only its proof needs the second arm.
                    chosen.append((name, mutant if told == "defect" else replace(mutant, witness="")))
            yield from _in_parts(f"judged-{margin:g}", chosen, seed, margin, declared(margin)[0])


# ------------------------------------------------------------------------------------------------------ a real run


def made_gate(batch: Batch, folder: Path, store: Path) -> GateFile:
    """Evalsets, models and gate file as a user would have them."""
    from tokenizers import Tokenizer

    from qualgate_evalsets.making.generate import write

    tokenizer = Tokenizer.from_file(str(PATH / "tokenizer.json"))
    for name in batch.sets:
        write(name, batch.seed, batch.cases, folder, tokenizer)
    text = GATE_FILE.replace("SETS", ", ".join(f"./{name}.yaml" for name in batch.sets))
    text = text.replace("FORM", FORM[batch.sets]).replace("STORE", str(store)).replace("MARGIN", f"{batch.margin:g}")
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

    with patch.object(generating, "run_jobs", run_jobs):
        yield


def is_named(line: dict[str, Any]) -> bool:
    """Whether the cause is the planted one. Weights that are broken so that answers run to their limit are told as
    `truncation`: no verdict can see more of them."""
    return line["cause"] == line["planted"] or (line["cause"], line["planted"]) == ("truncation", "recipe")


def planted_run(batch: Batch, store: Path) -> None:
    """Run the batch into `store`."""
    folder = Path(tempfile.mkdtemp(prefix="qualgate-planted-"))
    try:
        # Another template or tokenizer than the baseline's is refused before anything is generated. Here it gets past
        # that, as if it had changed since: the gate must see it in the evidence as well.
        with _pool_of(dict(batch.mutants)), patch.object(checks, "check_same_question"):
            main_path.run_gate(made_gate(batch, folder, store))
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(artifacts_folder(f"sqlite:///{store}", Path(store).parent), ignore_errors=True)


def judged(batch: Batch, store: Path) -> list[dict[str, Any]]:
    """From the store alone, a line a mutant: what was planted, what the gate says, what each rule's metric lost."""
    found = decide_again(url := f"sqlite:///{store}", None, None)
    with open_store(url, create=False) as opened:
        evidence, policy = runs.evidence(opened, found.run_id), runs.policy(opened, found.run_id)
    verdicts, arms = {v.variant: v for v in found.verdicts}, {arm.name: arm for arm in evidence.variants}
    return [
        {"name": name, "what": mutant.what, "planted": mutant.cause, "broken": mutant.broken, "seed": batch.seed,
         "margin": batch.margin, "cases": batch.cases, "witness": mutant.witness, "held_out": held_out(name),
         **_said(verdicts[name]), "losses": losses(evidence, arms[name], policy.rules)}
        for name, mutant in batch.mutants
    ]  # fmt: skip


def _said(verdict: Verdict) -> dict[str, Any]:
    compared = any(one.n for one in verdict.comparisons)
    return {"word": verdict.word, "cause": verdict.cause, "compared": compared, "reasons": list(verdict.reasons[:3])}


def losses(evidence: RunEvidence, arm: ArmEvidence, rules: Sequence[Rule]) -> list[dict[str, Any]]:
    """What each rule's metric lost, by sums that share nothing with the gate's: n, how many were lost and gained."""
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
        found.append({"metric": rule.metric, "n": len(change),
                      "lost": sum(c < 0 for c in change), "gained": sum(c > 0 for c in change)})  # fmt: skip
    return found


# -------------------------------------------------------------------------------------------------- truth, and rates


def pooled(lines: Sequence[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """By name, for each metric: loss over all of a mutant's truth runs, its standard error and the cases behind it."""
    sums: dict[str, dict[str, Counter[str]]] = {}
    for line in lines:
        for one in line["losses"]:
            of = sums.setdefault(line["name"], {}).setdefault(one["metric"], Counter())
            of.update({part: one[part] for part in ("n", "lost", "gained")})
    return {name: [_estimate(metric, c) for metric, c in found.items() if c["n"]] for name, found in sums.items()}


def _estimate(metric: str, count: Counter[str]) -> dict[str, Any]:
    n, lost, gained = count["n"], count["lost"], count["gained"]
    loss = (lost - gained) / n
    # No flip seen is no proof that none happens: the variance is that of one flip at least.
    return {"metric": metric, "loss": loss, "error": sqrt(max((lost + gained) / n - loss**2, 1 / n) / n), "n": n}


def truth(mutant: Mutant, lost: Sequence[dict[str, Any]], margin: float) -> str:
    """ "defect", "sound", or "" where its truth's runs cannot tell. lost: its entry of `pooled`."""
    if mutant.broken:
        return "defect"
    sides = {_side(one["loss"], one["error"], margin) for one in lost}
    return "defect" if "over" in sides else "sound" if sides == {"under"} else ""


def _side(loss: float, error: float, margin: float) -> str:
    return "over" if loss - 2 * error > margin else "under" if loss + 2 * error < margin else ""


def rates(lines: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """False approvals among the defects, false blocks among the sound, right causes among the refused defects.

    A cause counts where the gate found something: it blocked, or it could not take the evidence (incomplete, or not the
    same question to both). A defect on which it had too few cases to decide has shown nothing that could have a cause.
    """
    defects = [line for line in lines if line["truth"] == "defect"]
    sound = [line for line in lines if line["truth"] == "sound"]
    found = [
        o for o in defects if o["word"] in ("block", "invalid") or (o["word"] == "undecided" and not o["compared"])
    ]
    right = [line for line in found if is_named(line)]
    wrong = [f"{o['what']}: {o['cause'] or 'none'}, not {o['planted']}" for o in found if not is_named(o)]
    said = Counter(f"{line['planted']}: {line['cause'] or 'none'}" for line in found)
    return {
        "defects": len(defects),
        "approved": sum(line["word"] == "approve" for line in defects),
        "undecided": len(defects) - len(found) - sum(line["word"] == "approve" for line in defects),
        "sound": len(sound),
        "blocked": sum(line["word"] == "block" for line in sound),
        "sound_approved": sum(line["word"] == "approve" for line in sound),
        "found": len(found),
        "cause_right": len(right),
        "cause_right_of_planted": len(right) / max(1, len(defects)),
        "wrong_causes": dict(Counter(wrong)),
        "causes": dict(said),
    }  # fmt: skip


# ------------------------------------------------------------------------------------------------------------- rows


def collect(
    named: dict[str, Mutant], seeds: Sequence[int], margins: Sequence[float], truth_cases: dict[bool, int]
) -> list[dict[str, Any]]:
    """Every judged arm's line, with its truth."""
    lost = pooled([line for batch in truth_batches(named, truth_cases) for line in ran(batch)])
    lines = [line for batch in judged_batches(named, lost, seeds, margins) for line in ran(batch)]
    return [with_truth(line, named[line["name"]], lost.get(line["name"], [])) for line in lines]


def ran(batch: Batch) -> list[dict[str, Any]]:
    """The batch's lines."""
    with tempfile.TemporaryDirectory() as folder:
        planted_run(batch, store := Path(folder) / "store.db")
        return judged(batch, store)


def with_truth(line: dict[str, Any], mutant: Mutant, lost: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The line, and what its mutant truly loses: of the metric that loses most."""
    most = max(lost, key=lambda one: one["loss"], default={"loss": None, "error": None, "n": 0, "metric": ""})
    return line | {"truth": truth(mutant, lost, line["margin"]), "loss": most["loss"], "error": most["error"],
                   "truth_cases": most["n"], "loses": most["metric"]}  # fmt: skip


def measure(quick: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """(rounds: a line for each judged arm, rows `planted.*`). Half an hour of one core; quick: a few mutants."""
    named = {name: mutant for name, mutant in all_mutants().items() if not quick or int(name[1:]) % 30 == 0}
    which = (SEEDS[:1], MARGINS[-1:], {True: 60, False: 24}) if quick else (SEEDS, MARGINS, TRUTH_CASES)
    lines = collect(named, *which)
    return lines, rows(lines)


def rows(lines: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    found, held = rates(lines), rates([line for line in lines if line["held_out"]])
    planned = {f"{margin:g}": dict(zip(("cases", "approve", "block"), declared(margin), strict=True))
               for margin in MARGINS}  # fmt: skip
    both = {**found, "held_out": held, "planned": planned}

    def row(id: str, count: int, of: int, met: bool, enough: int) -> dict[str, Any]:
        # Clopper and Pearson's interval, 95 %, as if the arms of a mutant and of a run were independent.
        spread = [binomial_lower(count, of, 0.025), binomial_upper(count, of, 0.025)] if of else None
        row = {"id": id, "measured": {"rate": count / of if of else None, **both}, "spread": spread, "met": met}
        short = f"{of} are too few to be held to the goal ({enough} needed)"
        return row if of >= enough or not met else row | {"met": None, "reason": short}

    passed, blocked = found["approved"], found["blocked"]
    return [
        row("planted.false_approve", passed, found["defects"], passed <= AT_MOST * found["defects"], 100),
        row("planted.false_block", blocked, found["sound"], blocked <= AT_MOST * found["sound"], 100),
        row("planted.cause", held["cause_right"], held["found"], held["cause_right"] >= AT_LEAST * held["found"], 40),
    ]
